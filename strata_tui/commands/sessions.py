"""`strata-tui sessions`: the chats, and finding things in them."""

from __future__ import annotations

import argparse
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING

from ..text import clean_line

if TYPE_CHECKING:
    from ..sessions.rows import SessionInfo
    from ..sessions.search import Hit

HELP = "List the chats, pinned ones first, then the one used last; or search them."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--search",
        metavar="WORDS",
        nargs="+",
        help='messages and titles with all of these words or starts of words; "..." keeps words together',
    )
    what.add_argument("--deleted", action="store_true", help="the deleted chats, which are kept for 30 days")
    what.add_argument("--empty-bin", action="store_true", help="remove the deleted chats for good")
    parser.add_argument("--limit", metavar="N", type=_number, default=50, help="most results of a search (default: 50)")
    parser.add_argument("--json", action="store_true", help="as JSON, with every field")


def run(args: argparse.Namespace) -> int:
    from ..sessions.store import Store

    with Store() as store:
        if args.search is not None:
            return _search(store.search(" ".join(args.search), args.limit), args.json)
        if args.empty_bin:
            return _emptied(len(store.empty_bin().result()), args.json)
        chats = store.list_sessions(deleted=args.deleted)
    if args.json:
        return _json([_record(chat) for chat in chats])
    if not chats:
        print(f"No {'deleted ' if args.deleted else ''}chats in {store.path}.", file=sys.stderr)
    for chat in chats:
        print(_deleted_line(chat) if args.deleted else _line(chat))
    return 0


def _line(chat: SessionInfo) -> str:
    pin = "  pinned" if chat.pinned else ""
    return f"{chat.id:>5}  {_when(chat.updated)}  {chat.messages:>4} messages{pin}  {_title(chat)}"


def _deleted_line(chat: SessionInfo) -> str:
    from ..sessions.bin import days_left

    days = days_left(chat.deleted_at or 0.0, time.time())
    return f"{chat.id:>5}  {_when(chat.deleted_at or 0.0)}  kept for {days} more days  {_title(chat)}"


def _search(hits: list[Hit], as_json: bool) -> int:
    if as_json:
        return _json([_hit_record(hit) for hit in hits])
    if not hits:
        print("Nothing was found.", file=sys.stderr)
    for hit in hits:
        what = "chat" if hit.role is None else hit.role.value
        print(f"{hit.session:>5}  {_when(hit.created)}  {what:<9}  {clean_line(hit.title) or '(untitled)'}")
        if hit.role is not None:
            print("       " + "".join(piece for piece, _ in hit.snippet))
    return 0


def _emptied(removed: int, as_json: bool) -> int:
    if as_json:
        return _json({"removed": removed})
    print(f"{removed} deleted {'chat is' if removed == 1 else 'chats are'} gone for good.")
    return 0


def _record(chat: SessionInfo) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(chat)


def _hit_record(hit: Hit) -> dict[str, object]:
    return {
        "session": hit.session,
        "title": hit.title,
        "message": hit.message,
        "role": None if hit.role is None else hit.role.value,
        "created": hit.created,
        "snippet": "".join(piece for piece, _ in hit.snippet),
        "matched": [piece for piece, marked in hit.snippet if marked],
    }


def _json(value: object) -> int:
    from ..sessions.export.document import safe_json

    print(safe_json(value))
    return 0


def _title(chat: SessionInfo) -> str:
    if not chat.title and not chat.messages and chat.draft:
        return "(only a draft)"
    return clean_line(chat.title) or "(empty)"


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def _number(text: str) -> int:
    if text.isascii() and text.isdigit() and 0 < int(text) <= 100_000:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 100000")
