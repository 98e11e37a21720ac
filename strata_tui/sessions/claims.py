"""Which chats are open in a running program, so that a second one shows them read-only.

A chat's row names the token of the program that has it open (see owner.py). A claim of a program that
has ended, however it ended, counts for nothing.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ..errors import UserError
from .owner import is_alive


class Claims:
    """The claims as one program sees them. Methods take the writing connection, inside a transaction."""

    def __init__(self, folder: Path, token: str, database: Path) -> None:
        self._folder = folder
        self._token = token
        self._database = database

    def holder(self, connection: sqlite3.Connection, session: int) -> int | None:
        """The process number of another live program that has the chat open. Raises UserError for no such chat."""
        row = connection.execute("SELECT owner, owner_pid FROM sessions WHERE id = ?", (session,)).fetchone()
        if row is None:
            raise UserError(f"There is no chat {session} in {self._database}.")
        owner, pid = row
        if owner is None or owner == self._token or not is_alive(self._folder, owner):
            return None
        return int(pid)

    def check(self, connection: sqlite3.Connection, session: int) -> None:
        """Raises UserError where another live program has the chat open."""
        pid = self.holder(connection, session)
        if pid is not None:
            raise UserError(
                f"Chat {session} is open in another window (process {pid}): fork it to go on in a copy, "
                "or close it there."
            )

    def take(self, connection: sqlite3.Connection, session: int, pid: int) -> int | None:
        """Claims the chat for this program (process `pid`); what `holder` says where another one has it."""
        other = self.holder(connection, session)
        if other is None:
            connection.execute(
                "UPDATE sessions SET owner = ?, owner_pid = ? WHERE id = ? AND owner IS NOT ?",
                (self._token, pid, session, self._token),
            )
        return other

    def give_up(self, connection: sqlite3.Connection, session: int | None = None) -> None:
        """Gives up one claim of this program, or all of them."""
        connection.execute(
            "UPDATE sessions SET owner = NULL, owner_pid = NULL WHERE owner = ? AND (? IS NULL OR id = ?)",
            (self._token, session, session),
        )
