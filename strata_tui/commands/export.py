"""`strata-tui export`: a chat as a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..errors import UserError
from .chat import chat_id

HELP = "Write a chat as markdown (the shown branch) or JSON (all branches)."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="?", default="last", type=_which, help="the chat's number, or last")
    parser.add_argument("--format", choices=("md", "json"), help="default: what FILE ends with, else md")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="a file or folder, or - for stdout (default: a name made from the title); a file is never overwritten",
    )
    parser.add_argument("--thinking", action="store_true", help="with the replies' thinking (markdown)")


def run(args: argparse.Namespace) -> int:
    from ..sessions import export
    from ..sessions.store import Store

    form = args.format or ("json" if args.output and args.output.endswith(".json") else "md")
    with Store() as store:
        if args.id == "last":
            chats = store.list_sessions()
            if not chats:
                raise UserError(f"There is no chat to export in {store.path}.")
            session = chats[0]
        else:
            session = store.session(args.id)
        if form == "json":
            text = export.to_json(session, store.messages(session.id))
        else:
            text = export.to_markdown(session, store.branch(session.id), thinking=args.thinking)
    if args.output == "-":
        sys.stdout.write(text)
        return 0
    target = Path(args.output or ".")
    if target.is_dir():
        target /= export.file_name(session, form)
    print(export.write_export(text, target))
    return 0


def _which(text: str) -> int | str:
    return text if text == "last" else chat_id(text)
