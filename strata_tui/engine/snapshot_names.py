"""Names of chats and of snapshot files, so that a chat's files are found without opening any."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

SUFFIX = ".kv"
_KEY = re.compile(r"[0-9a-z]{1,32}(-[0-9]{1,20})?")
_FILE = re.compile(rf"(?P<identity>[0-9a-f]{{16}})-(?P<chat>{_KEY.pattern}){re.escape(SUFFIX)}")


def chat_key(store: Path, session: int) -> str:
    """Names a chat of one store, among the chats of all stores."""
    return f"{store_key(store)}-{session}"


def store_key(store: Path) -> str:
    """Names the store in its chats' keys."""
    return hashlib.blake2b(os.fsencode(os.path.realpath(store)), digest_size=6).hexdigest()


def is_key(chat: str) -> bool:
    """Whether `chat` can name a file."""
    return _KEY.fullmatch(chat) is not None


def file_name(identity: str, chat: str) -> str:
    """Of the chat's snapshot; `identity` (16 hexadecimal digits) names what it fits."""
    return f"{identity}-{chat}{SUFFIX}"


def parts_of(name: str) -> tuple[str, str] | None:
    """(identity, chat) of a snapshot file's name; None of any other."""
    found = _FILE.fullmatch(name)
    return (found["identity"], found["chat"]) if found else None
