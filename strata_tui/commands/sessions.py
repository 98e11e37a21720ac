"""`strata-tui sessions`: the chats."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime

HELP = "List the chats, newest first."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON, with every field")


def run(args: argparse.Namespace) -> int:
    from ..sessions.store import Store

    with Store() as store:
        chats = store.list_sessions()
    if args.json:
        import json
        from dataclasses import asdict

        print(json.dumps([asdict(chat) for chat in chats], ensure_ascii=False, indent=2))
        return 0
    if not chats:
        print(f"No chats in {store.path}.", file=sys.stderr)
    for chat in chats:
        when = datetime.fromtimestamp(chat.updated).strftime("%Y-%m-%d %H:%M")
        print(f"{chat.id:>5}  {when}  {chat.messages:>4} messages  {chat.title or '(empty)'}")
    return 0
