"""Rows of the database as values, and values as rows."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from .portable import PortableChat
from .rows import MessageRow, Role, SessionInfo, Status

SESSION = """SELECT s.id, title, created, updated, draft, system, model, leaf, deleted_at, pinned, options_json,
    (SELECT count(*) FROM messages m WHERE m.session_id = s.id) AS messages FROM sessions s"""
MESSAGE = """SELECT id, session_id, parent_id, role, text, thinking, status, note, model, params_json,
    stats_json, owner_pid, created, updated, sent FROM messages"""


def session_of(row: sqlite3.Row) -> SessionInfo:
    """A row of SESSION."""
    values: dict[str, Any] = dict(row)
    stored = values.pop("options_json")
    values["options"] = {} if stored is None else json.loads(stored)
    values["pinned"] = bool(values["pinned"])
    return SessionInfo(**values)


def message_of(row: sqlite3.Row) -> MessageRow:
    """A row of MESSAGE."""
    values: dict[str, Any] = dict(row)
    for name in ("params", "stats"):
        stored = values.pop(f"{name}_json")
        values[name] = None if stored is None else json.loads(stored)
    values["role"] = Role(values["role"])
    values["status"] = Status(values["status"])
    values["sent"] = bool(values["sent"])
    return MessageRow(**values)


def insert(connection: sqlite3.Connection, table: str, record: Mapping[str, object]) -> int:
    """Adds a row; its id."""
    places = ", ".join("?" * len(record))
    sql = f"INSERT INTO {table} ({', '.join(record)}) VALUES ({places})"
    row = connection.execute(sql, tuple(record.values())).lastrowid
    assert row is not None
    return row


def insert_chat(connection: sqlite3.Connection, chat: PortableChat, source: str | None = None) -> int:
    """Adds a chat with all its messages; its id. `source`: digest of what it was imported from."""
    session = insert(
        connection,
        "sessions",
        {
            "title": storable(chat.title),
            "created": chat.created,
            "updated": chat.updated,
            "draft": storable(chat.draft),
            "system": storable(chat.system),
            "model": storable(chat.model),
            "pinned": int(chat.pinned),
            "options_json": packed(chat.options or None),
            "source": source,
        },
    )
    keys: list[int] = []
    for message in chat.messages:
        record = {
            "session_id": session,
            "parent_id": None if message.parent is None else keys[message.parent],
            "role": message.role.value,
            "text": storable(message.text),
            "thinking": storable(message.thinking),
            "status": message.status.value,
            "note": storable(message.note),
            "model": storable(message.model),
            "params_json": packed(message.params),
            "stats_json": packed(message.stats),
            "created": message.created,
            "updated": message.updated,
            "sent": int(message.sent),
        }
        keys.append(insert(connection, "messages", record))
    if chat.leaf is not None:
        connection.execute("UPDATE sessions SET leaf = ? WHERE id = ?", (keys[chat.leaf], session))
    return session


def packed(values: Mapping[str, object] | None) -> str | None:
    """Plain JSON values as the database keeps them."""
    return None if values is None else json.dumps(dict(values))


def storable(text: str) -> str:
    """Text that UTF-8 can hold: a lone surrogate (from a terminal or a file name) becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
