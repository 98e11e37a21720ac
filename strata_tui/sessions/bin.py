"""Deleted chats: kept for a while, then gone for good."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ..engine.snapshot_names import SUFFIX, chat_key, parts_of, store_key
from . import search
from .claims import Claims

KEPT_DAYS = 30
KEPT_SECONDS = KEPT_DAYS * 24 * 3600.0


def empty(
    connection: sqlite3.Connection, claims: Claims, deleted_before: float, session: int | None = None
) -> list[int]:
    """Removes chats deleted at or before a time, or one of them, with all their messages; their ids.

    Nothing of them is left in the file or its index. A chat that another live program has open stays.
    """
    rows = connection.execute(
        "SELECT id FROM sessions WHERE deleted_at <= ? AND (? IS NULL OR id = ?)", (deleted_before, session, session)
    ).fetchall()
    gone = [key for (key,) in rows if claims.holder(connection, key) is None]
    if not gone:
        return []
    for key in gone:
        connection.execute("UPDATE sessions SET leaf = NULL WHERE id = ?", (key,))
        connection.execute("DELETE FROM messages WHERE session_id = ?", (key,))
        connection.execute("DELETE FROM sessions WHERE id = ?", (key,))
    while search.index(connection):  # which forgets them
        pass
    search.tidy(connection)
    return gone


def forget_snapshots(connection: sqlite3.Connection, folder: Path, store: Path) -> int:
    """Removes the KV snapshots in `folder` of this store's chats that are gone for good; how many. Raises OSError.

    The engine of another program may have written one after its chat was removed here, so all are looked at.
    """
    if not folder.is_dir():
        return 0
    living = {chat_key(store, key) for (key,) in connection.execute("SELECT id FROM sessions")}
    mine, removed = store_key(store) + "-", 0
    for path in folder.glob(f"*{SUFFIX}"):
        named = parts_of(path.name)
        if named is not None and named[1].startswith(mine) and named[1] not in living:
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def remove_unused(connection: sqlite3.Connection, claims: Claims, session: int) -> bool:
    """Removes a chat that has no message, title, draft or options, and is not open elsewhere; whether it did."""
    if claims.holder(connection, session) is not None:
        return False
    unused = "title = '' AND draft = '' AND options_json IS NULL AND deleted_at IS NULL"
    nothing_said = "NOT EXISTS (SELECT 1 FROM messages WHERE session_id = sessions.id)"
    sql = f"DELETE FROM sessions WHERE id = ? AND {unused} AND {nothing_said}"
    return bool(connection.execute(sql, (session,)).rowcount)


def days_left(deleted_at: float, now: float) -> int:
    """Full days until a chat deleted then is gone for good; 0 on its last day."""
    return max(0, int((deleted_at + KEPT_SECONDS - now) // (24 * 3600)))
