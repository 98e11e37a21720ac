"""The whole of a chat as JSON, which `strata_tui.sessions.imports` reads back.

Version 2 has nothing that only one store knows: a message's `id` is its place in the list, from 1, and
`parent_id` and the chat's `leaf` are such ids. Version 1 had the store's own ids. Times are Unix seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict

from ... import __version__
from ..portable import portable
from ..rows import MessageRow, SessionInfo

SCHEMA = "strata-tui chat"
SCHEMA_VERSION = 2

# JSON's own escapes end at 0x1f: what else a terminal or a reader of lines would obey
_CONTROL = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def to_json(session: SessionInfo, messages: Iterable[MessageRow]) -> str:
    """The chat with these messages, their text unchanged. A reply that is being written counts as interrupted."""
    chat = asdict(portable(session, messages))
    records = chat.pop("messages")
    document = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "app": "strata-tui",
        "app_version": __version__,
        "session": chat | {"leaf": _id(chat["leaf"])},
        "messages": [
            {"id": place + 1, "parent_id": _id(record.pop("parent"))} | record for place, record in enumerate(records)
        ],
    }
    return safe_json(document) + "\n"


def safe_json(value: object) -> str:
    """JSON that a terminal can be shown: control characters are escaped, all else is as it is."""
    return _escaped(json.dumps(value, ensure_ascii=False, indent=2))


def safe_line(value: object) -> str:
    """The same on one line."""
    return _escaped(json.dumps(value, ensure_ascii=False))


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def _id(place: int | None) -> int | None:
    return None if place is None else place + 1
