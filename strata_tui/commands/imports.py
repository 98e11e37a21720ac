"""`strata-tui import`: chats of other programs, and exported ones."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "Take in chats: ChatGPT's data export, llama.cpp's web interface, or our own JSON."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        type=Path,
        help="conversations.json or the zip around it, web-UI exports (json, jsonl, zip), chats exported as JSON",
    )


def run(args: argparse.Namespace) -> int:
    from ..sessions.imports import read_file, take_in
    from ..sessions.store import Store

    found = [read_file(path) for path in args.files]  # nothing is taken in where one of them cannot be read
    with Store() as store:
        for one in found:
            print(take_in(store, one))
    return 0
