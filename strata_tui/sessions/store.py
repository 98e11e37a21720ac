"""The store: every chat in one SQLite file.

Writes are done in order by one thread, so that the caller never waits for the disk: each returns a
`Future`, and a later write may be given the future of an earlier one in place of an id. Reads are
small and done by the caller. Several programs may have the same store open. Callbacks of a future
run on the writer thread.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Literal, TypeVar

from ..config import snapshot_dir, store_path
from ..errors import UserError
from ..text import clean_line
from . import bin, search
from .claims import Claims
from .database import Database
from .owner import Owner, is_alive
from .portable import PortableChat, portable
from .records import MESSAGE, SESSION, insert, insert_chat, message_of, packed, session_of, storable
from .rows import MessageRow, Role, SessionInfo, Status
from .schema import clear_errors, create_file
from .titles import title_from as title_from
from .tree import Tree

T = TypeVar("T")
Ref = int | Future[int]  # an id, or the future of the write that makes it


class At(Enum):
    """Where a message goes when no parent is named."""

    LEAF = "leaf"


Parent = Ref | Literal[At.LEAF] | None


class Store:
    """Raises UserError when it cannot be opened or read; a failed write raises it in its future.

    `on_error` is told of every failed write too, on the writer thread, for writes nobody waits for.
    """

    def __init__(self, path: Path | None = None, on_error: Callable[[Exception], None] | None = None) -> None:
        self.path = path or store_path()
        self._snapshots = snapshot_dir()
        self._instances = self.path.with_name(self.path.stem + ".instances")
        with clear_errors(self.path):
            create_file(self.path)
            self._owner = Owner(self._instances)
        self._claims = Claims(self._instances, self._owner.token, self.path)
        try:
            self._database = Database(self.path, on_error)
        except BaseException:
            self._owner.release()
            raise
        try:
            self.interrupt_dead().result()
        except BaseException:
            self.close()
            raise
        self.empty_bin(bin.KEPT_SECONDS)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading

    def list_sessions(self, *, deleted: bool = False) -> list[SessionInfo]:
        """Chats, pinned ones first, then the one written to last; with `deleted` the deleted ones, the last first."""
        where = "IS NOT NULL ORDER BY deleted_at" if deleted else "IS NULL ORDER BY pinned DESC, updated"
        return [session_of(r) for r in self._database.read(f"{SESSION} WHERE deleted_at {where} DESC, id DESC")]

    def session(self, session: int) -> SessionInfo:
        """One chat, deleted or not. Raises UserError when there is none with this id."""
        rows = self._database.read(f"{SESSION} WHERE id = ?", session)
        if not rows:
            raise UserError(f"There is no chat {session} in {self.path}; `strata-tui sessions` lists them.")
        return session_of(rows[0])

    def messages(self, session: int) -> list[MessageRow]:
        """All messages of a chat, in all branches, in the order in which they were written."""
        return [message_of(r) for r in self._database.read(f"{MESSAGE} WHERE session_id = ? ORDER BY id", session)]

    def tree(self, session: int) -> Tree:
        """All messages of a chat, as a tree."""
        return Tree(self.messages(session))

    def branch(self, session: int) -> list[MessageRow]:
        """The messages of the branch that is shown, from the first one on."""
        info = self.session(session)
        return self.tree(session).path(info.leaf)

    def search(self, words: str, limit: int = search.MOST_HITS) -> list[search.Hit]:
        """Chats and messages with all of the words, the best first; see search.terms_of for what words may be.

        Raises UserError.
        """
        terms = search.terms_of(words)
        self.index()
        return search.find(self._database.read, terms, limit)

    def index(self) -> None:
        """Brings what has been written since the last search into the index, and waits for it."""
        while self._database.read("SELECT 1 FROM unindexed LIMIT 1"):
            self._write(search.index).result()

    def sent_messages(self, most: int) -> list[str]:
        """The last messages of persons, in all chats and branches that are not deleted, oldest first."""
        sql = """SELECT text FROM messages m JOIN sessions s ON s.id = m.session_id
            WHERE m.role = 'user' AND s.deleted_at IS NULL ORDER BY m.id DESC LIMIT ?"""
        return [text for (text,) in reversed(self._database.read(sql, most))]

    # Writing: chats

    def create_session(self, *, title: str = "", system: str = "", model: str = "") -> Future[int]:
        """A new, empty chat. Without a title it gets one from its first message."""

        now = time.time()
        record = {"title": clean_line(title), "created": now, "updated": now}
        return self._write(
            lambda c: insert(c, "sessions", record | {"system": storable(system), "model": storable(model)})
        )

    def add_chats(self, chats: Sequence[PortableChat]) -> Future[list[int | None]]:
        """Takes in chats whole, all or none; their ids, None for one that was taken in before and is not deleted."""

        def add(connection: sqlite3.Connection, chat: PortableChat) -> int | None:
            digest = chat.digest()
            sql = "SELECT 1 FROM sessions WHERE source = ? AND deleted_at IS NULL"
            known = connection.execute(sql, (digest,)).fetchone()
            return None if known else insert_chat(connection, chat, digest)

        return self._write(lambda c: [add(c, chat) for chat in chats])

    def fork(self, session: Ref, message: Ref | None = None, first: Ref | None = None) -> Future[int]:
        """Copies the branch that ends at a message, or else the shown one, into a new chat; its id.

        Whole, or from the message `first` of it on.
        """

        def work(connection: sqlite3.Connection) -> int:
            row = connection.execute(f"{SESSION} WHERE id = ?", (_id(session),)).fetchone()
            if row is None:
                raise self._no_chat(_id(session))
            info = session_of(row)
            rows = connection.execute(f"{MESSAGE} WHERE session_id = ?", (info.id,)).fetchall()
            tree = Tree(map(message_of, rows))
            leaf = info.leaf if message is None else _id(message)
            if leaf is not None and leaf not in tree:
                raise UserError(f"Chat {info.id} has no message {leaf}.")
            path = tree.path(leaf)
            if first is not None:
                start = next((n for n, m in enumerate(path) if m.id == _id(first)), None)
                if start is None:
                    raise UserError(f"Message {_id(first)} is not in this branch of chat {info.id}.")
                path = [replace(path[start], parent_id=None), *path[start + 1 :]]
            now = time.time()
            copy = replace(info, leaf=leaf, created=now, updated=now, draft="", pinned=False)
            return insert_chat(connection, portable(copy, path))

        return self._write(work)

    def rename(self, session: Ref, title: str) -> Future[None]:
        """Sets the title. An empty one is refused."""
        if not clean_line(title):
            raise UserError("A chat's title cannot be empty.")
        return self._change_session(session, "title = ?", clean_line(title), held=False)

    def set_pinned(self, session: Ref, pinned: bool) -> Future[None]:
        """Keeps a chat at the top of the list, or not any more."""
        return self._change_session(session, "pinned = ?", int(pinned), held=False)

    def delete(self, session: Ref) -> Future[None]:
        """Takes a chat off the list, into the bin; `restore` brings it back whole."""
        return self._change_session(session, "deleted_at = ?", time.time())

    def restore(self, session: Ref) -> Future[None]:
        """Undoes `delete`."""
        return self._change_session(session, "deleted_at = NULL", held=False)

    def empty_bin(self, older_than: float = 0.0, session: int | None = None) -> Future[list[int]]:
        """Removes deleted chats for good, or one of them; their ids. Done on opening for those older than 30 days.

        `older_than`: seconds since they were deleted. Their KV snapshots on the disk go, too; an engine that holds
        some must be told.
        """

        def work(connection: sqlite3.Connection) -> list[int]:
            return bin.empty(connection, self._claims, time.time() - older_than, session)

        def forget(connection: sqlite3.Connection) -> int:
            with contextlib.suppress(OSError):  # it is a cache, and looked through again at the next start
                return bin.forget_snapshots(connection, self._snapshots, self.path)
            return 0

        gone = self._write(work)
        self._write(forget)
        return gone

    def remove_unused(self, session: Ref) -> Future[bool]:
        """Removes a chat that never came to anything: no message, title, draft or options; whether it was one."""
        return self._write(lambda c: bin.remove_unused(c, self._claims, _id(session)))

    def claim(self, session: Ref) -> Future[int | None]:
        """Says that this program has the chat open. None, or the process number of another live one that has it.

        A chat that another program has open refuses every write but rename, pin and restore.
        """
        return self._write(lambda c: self._claims.take(c, _id(session), os.getpid()))

    def release(self, session: Ref) -> Future[None]:
        """Undoes `claim`; the end of the program does too."""
        return self._write(lambda c: self._claims.give_up(c, _id(session)))

    def set_draft(self, session: Ref, text: str) -> Future[None]:
        """Keeps what is typed and not sent."""
        return self._change_session(session, "draft = ?", storable(text))

    def set_system(self, session: Ref, text: str) -> Future[None]:
        """Sets the system prompt."""
        return self._change_session(session, "system = ?", storable(text))

    def set_model(self, session: Ref, model: str) -> Future[None]:
        """Keeps which model the chat is held with."""
        return self._change_session(session, "model = ?", storable(model))

    def set_options(self, session: Ref, options: Mapping[str, object]) -> Future[None]:
        """Keeps what the chat has of its own, as plain JSON values."""
        return self._change_session(session, "options_json = ?", packed(options or None))

    def set_leaf(self, session: Ref, message: Ref | None) -> Future[None]:
        """Shows the branch that ends at `message` (see Tree.newest_leaf); None: an empty branch."""

        def work(connection: sqlite3.Connection) -> None:
            self._update_session(connection, _id(session), "leaf = ?", None if message is None else _id(message))

        return self._write(work)

    # Writing: messages

    def add_user_message(self, session: Ref, text: str, parent: Parent = At.LEAF) -> Future[int]:
        """A person's turn; its id. Committed when the future is done: only then may the engine see it.

        It follows the shown branch's end, or `parent` (None: it starts a new branch), and ends the shown
        branch. The draft is emptied, and a chat without a title gets one.
        """

        def work(connection: sqlite3.Connection) -> int:
            key = _id(session)
            message = self._add(connection, key, parent, Role.USER, Status.DONE, text=storable(text))
            change = "updated = ?, draft = '', title = CASE title WHEN '' THEN ? ELSE title END"
            self._update_session(connection, key, change, time.time(), title_from(text))
            return message

        return self._write(work)

    def begin_reply(
        self,
        session: Ref,
        parent: Parent = At.LEAF,
        *,
        model: str = "",
        params: Mapping[str, object] | None = None,
    ) -> Future[int]:
        """An empty reply of status running, written by this program; its id."""

        def work(connection: sqlite3.Connection) -> int:
            return self._add(
                connection,
                _id(session),
                parent,
                Role.ASSISTANT,
                Status.RUNNING,
                model=storable(model),
                params_json=packed(params),
                owner=self._owner.token,
                owner_pid=os.getpid(),
            )

        return self._write(work)

    def set_sent(self, session: Ref, sent: Mapping[int, bool]) -> Future[None]:
        """Which of these messages, by their ids, the model gets; all of it or nothing."""

        def work(connection: sqlite3.Connection) -> None:
            key = _id(session)
            self._claims.check(connection, key)
            for message, whether in sent.items():
                change = "UPDATE messages SET sent = ? WHERE id = ? AND session_id = ?"
                if not connection.execute(change, (int(whether), message, key)).rowcount:
                    raise UserError(f"Chat {key} has no message {message}.")

        return self._write(work)

    def resume_reply(self, message: Ref) -> Future[None]:
        """A reply that has ended is written on by this program: it is running again, with what there is of it."""

        def work(connection: sqlite3.Connection) -> None:
            key = _id(message)
            change = "UPDATE messages SET status = 'running', owner = ?, owner_pid = ?"
            where = "WHERE id = ? AND role = 'assistant' AND status <> 'running' RETURNING session_id"
            row = connection.execute(f"{change} {where}", (self._owner.token, os.getpid(), key)).fetchone()
            if row is None:
                raise UserError(f"Reply {key} in {self.path} is being written already.")
            self._claims.check(connection, row[0])

        return self._write(work)

    def checkpoint_reply(self, message: Ref, text: str, thinking: str = "") -> Future[None]:
        """Keeps what there is of a running reply; call it every second."""
        sql = "UPDATE messages SET text = ?, thinking = ?, updated = ?"
        return self._change_reply(message, sql, storable(text), storable(thinking), time.time())

    def finish_reply(
        self,
        message: Ref,
        status: Status,
        text: str,
        thinking: str = "",
        stats: Mapping[str, object] | None = None,
        note: str = "",
    ) -> Future[None]:
        """The end of a running reply. `stats`: ReplyStats.to_dict(); `note`: why it ended in an error."""
        if status is Status.RUNNING:
            raise ValueError("a reply does not end as running")
        sql = "UPDATE messages SET status = ?, text = ?, thinking = ?, stats_json = ?, note = ?, updated = ?"
        values = (status.value, storable(text), storable(thinking), packed(stats), storable(note), time.time())
        return self._change_reply(message, sql, *values, ends=True)

    def interrupt_dead(self) -> Future[int]:
        """Marks running replies of programs that have ended as interrupted; how many. Done on opening too."""

        def work(connection: sqlite3.Connection) -> int:
            rows = connection.execute("SELECT DISTINCT owner FROM messages WHERE status = 'running'").fetchall()
            return sum(_interrupt(connection, o) for (o,) in rows if not is_alive(self._instances, o))

        return self._write(work)

    def flush(self, timeout: float | None = None) -> None:
        """Waits until every write so far is done. Raises TimeoutError."""
        self._write(lambda _: None).result(timeout)

    def close(self, timeout: float = 30.0) -> None:
        """Finishes all writes, marks replies still running here as interrupted, and closes the file."""

        def last(connection: sqlite3.Connection) -> None:
            _interrupt(connection, self._owner.token)
            self._claims.give_up(connection)

        ending = self._database.close(last, timeout)
        self._owner.release()
        ending.result()

    # Inside

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        return self._database.write(work)

    def _no_chat(self, session: int) -> UserError:
        return UserError(f"There is no chat {session} in {self.path}.")

    def _add(
        self, connection: sqlite3.Connection, session: int, parent: Parent, role: Role, status: Status, **values: object
    ) -> int:
        row = connection.execute("SELECT leaf FROM sessions WHERE id = ?", (session,)).fetchone()
        if row is None:
            raise self._no_chat(session)
        now = time.time()
        record = {
            "session_id": session,
            "parent_id": row[0] if parent is At.LEAF else None if parent is None else _id(parent),
            "role": role.value,
            "status": status.value,
            "text": "",
            "created": now,
            "updated": now,
        }
        message = insert(connection, "messages", record | values)
        self._update_session(connection, session, "leaf = ?", message)
        return message

    def _change_session(self, session: Ref, change: str, *values: object, held: bool = True) -> Future[None]:
        return self._write(lambda c: self._update_session(c, _id(session), change, *values, held=held))

    def _update_session(
        self, connection: sqlite3.Connection, session: int, change: str, *values: object, held: bool = True
    ) -> None:
        """`held`: another program that has the chat open keeps it from being changed."""
        if held:
            self._claims.check(connection, session)
        if not connection.execute(f"UPDATE sessions SET {change} WHERE id = ?", (*values, session)).rowcount:
            raise self._no_chat(session)

    def _change_reply(self, message: Ref, sql: str, *values: object, ends: bool = False) -> Future[None]:
        where = "WHERE id = ? AND status = 'running' AND owner = ?"

        def work(connection: sqlite3.Connection) -> None:
            key = _id(message)
            if not connection.execute(f"{sql} {where}", (*values, key, self._owner.token)).rowcount:
                raise UserError(f"Reply {key} in {self.path} is not being written by this program.")
            if ends:
                sets = "UPDATE sessions SET updated = ? WHERE id = (SELECT session_id FROM messages WHERE id = ?)"
                connection.execute(sets, (time.time(), key))

        return self._write(work)


def _id(ref: Ref) -> int:
    # the write a future stands for came earlier in the queue, so it is done
    return ref if isinstance(ref, int) else ref.result(timeout=0)


def _interrupt(connection: sqlite3.Connection, owner: str) -> int:
    sql = "UPDATE messages SET status = 'interrupted' WHERE status = 'running' AND owner = ?"
    return connection.execute(sql, (owner,)).rowcount
