"""Deleted chats: kept for a while, then gone for good."""

from __future__ import annotations

import sqlite3

from . import search
from .claims import Claims

KEPT_DAYS = 30
KEPT_SECONDS = KEPT_DAYS * 24 * 3600.0


def empty(connection: sqlite3.Connection, claims: Claims, deleted_before: float, session: int | None = None) -> int:
    """Removes chats deleted at or before a time, or one of them, with all their messages; how many.

    Nothing of them is left in the file or its index. A chat that another live program has open stays.
    """
    rows = connection.execute(
        "SELECT id FROM sessions WHERE deleted_at <= ? AND (? IS NULL OR id = ?)", (deleted_before, session, session)
    ).fetchall()
    gone = [key for (key,) in rows if claims.holder(connection, key) is None]
    if not gone:
        return 0
    for key in gone:
        connection.execute("UPDATE sessions SET leaf = NULL WHERE id = ?", (key,))
        connection.execute("DELETE FROM messages WHERE session_id = ?", (key,))
        connection.execute("DELETE FROM sessions WHERE id = ?", (key,))
    while search.index(connection):  # which forgets them
        pass
    search.tidy(connection)
    return len(gone)


def days_left(deleted_at: float, now: float) -> int:
    """Full days until a chat deleted then is gone for good; 0 on its last day."""
    return max(0, int((deleted_at + KEPT_SECONDS - now) // (24 * 3600)))
