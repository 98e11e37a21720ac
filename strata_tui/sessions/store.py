"""The store: every chat in one SQLite file.

Writes are done in order by one thread, so that the caller never waits for the disk: each returns a
`Future`, and a later write may be given the future of an earlier one in place of an id. Reads are
small and done by the caller. Several programs may have the same store open. Callbacks of a future
run on the writer thread.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeVar

from ..config import store_path
from ..errors import UserError
from ..text import clean_line
from .owner import Owner, is_alive
from .rows import MessageRow, Role, SessionInfo, Status
from .schema import clear_errors, connect, create_file, migrate, transaction
from .tree import Tree

T = TypeVar("T")
Ref = int | Future[int]  # an id, or the future of the write that makes it
TITLE_LENGTH = 60

_SESSION = """SELECT s.id, title, created, updated, draft, system, model, leaf, deleted_at,
    (SELECT count(*) FROM messages m WHERE m.session_id = s.id) AS messages FROM sessions s"""
_MESSAGE = """SELECT id, session_id, parent_id, role, text, thinking, status, note, model, params_json,
    stats_json, owner_pid, created, updated FROM messages"""


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
        self._on_error = on_error
        self._instances = self.path.with_name(self.path.stem + ".instances")
        with clear_errors(self.path):
            create_file(self.path)
            self._owner = Owner(self._instances)
            try:
                self._writer = connect(self.path)
                try:
                    migrate(self._writer, self.path)
                    self._reader = connect(self.path)
                except BaseException:
                    self._writer.close()
                    raise
            except BaseException:
                self._owner.release()
                raise
            self._reader.execute("PRAGMA query_only = ON")
        self._read_lock = threading.Lock()
        self._closing = threading.Lock()  # nothing is queued after the end mark
        self._closed = False
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_loop, name="store-writer", daemon=True)
        self._thread.start()
        try:
            self.interrupt_dead().result()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading

    def list_sessions(self, *, deleted: bool = False) -> list[SessionInfo]:
        """Chats, the one written to last first; with `deleted` the deleted ones instead."""
        which = "IS NOT NULL" if deleted else "IS NULL"
        rows = self._read(f"{_SESSION} WHERE deleted_at {which} ORDER BY updated DESC, id DESC")
        return [SessionInfo(**r) for r in rows]

    def session(self, session: int) -> SessionInfo:
        """One chat, deleted or not. Raises UserError when there is none with this id."""
        rows = self._read(f"{_SESSION} WHERE id = ?", session)
        if not rows:
            raise UserError(f"There is no chat {session} in {self.path}; `strata-tui sessions` lists them.")
        return SessionInfo(**rows[0])

    def messages(self, session: int) -> list[MessageRow]:
        """All messages of a chat, in all branches, in the order in which they were written."""
        return [_message(r) for r in self._read(f"{_MESSAGE} WHERE session_id = ? ORDER BY id", session)]

    def tree(self, session: int) -> Tree:
        """All messages of a chat, as a tree."""
        return Tree(self.messages(session))

    def branch(self, session: int) -> list[MessageRow]:
        """The messages of the branch that is shown, from the first one on."""
        info = self.session(session)
        return self.tree(session).path(info.leaf)

    # Writing

    def create_session(self, *, title: str = "", system: str = "", model: str = "") -> Future[int]:
        """A new, empty chat. Without a title it gets one from its first message."""

        def work() -> int:
            now = time.time()
            sql = "INSERT INTO sessions (title, created, updated, system, model) VALUES (?, ?, ?, ?, ?)"
            return self._insert(sql, clean_line(title), now, now, _text(system), _text(model))

        return self._write(work)

    def rename(self, session: Ref, title: str) -> Future[None]:
        """Sets the title. An empty one is refused."""
        if not clean_line(title):
            raise UserError("A chat's title cannot be empty.")
        return self._change_session(session, "title = ?", clean_line(title))

    def delete(self, session: Ref) -> Future[None]:
        """Takes a chat off the list; `restore` brings it back whole."""
        return self._change_session(session, "deleted_at = ?", time.time())

    def restore(self, session: Ref) -> Future[None]:
        """Undoes `delete`."""
        return self._change_session(session, "deleted_at = NULL")

    def set_draft(self, session: Ref, text: str) -> Future[None]:
        """Keeps what is typed and not sent."""
        return self._change_session(session, "draft = ?", _text(text))

    def set_system(self, session: Ref, text: str) -> Future[None]:
        """Sets the system prompt."""
        return self._change_session(session, "system = ?", _text(text))

    def set_model(self, session: Ref, model: str) -> Future[None]:
        """Keeps which model the chat is held with."""
        return self._change_session(session, "model = ?", _text(model))

    def set_leaf(self, session: Ref, message: Ref | None) -> Future[None]:
        """Shows the branch that ends at `message` (see Tree.newest_leaf); None: an empty branch."""

        def work() -> None:
            self._update_session(_id(session), "leaf = ?", None if message is None else _id(message))

        return self._write(work)

    def add_user_message(self, session: Ref, text: str, parent: Parent = At.LEAF) -> Future[int]:
        """A person's turn; its id. Committed when the future is done: only then may the engine see it.

        It follows the shown branch's end, or `parent` (None: it starts a new branch), and ends the shown
        branch. The draft is emptied, and a chat without a title gets one.
        """

        def work() -> int:
            owner = _id(session)
            message = self._add(owner, parent, Role.USER, Status.DONE, text=_text(text))
            self._update_session(owner, "updated = ?, draft = ''", time.time())
            self._update_session(owner, "title = CASE title WHEN '' THEN ? ELSE title END", title_from(text))
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

        def work() -> int:
            return self._add(
                _id(session),
                parent,
                Role.ASSISTANT,
                Status.RUNNING,
                model=_text(model),
                params_json=None if params is None else json.dumps(dict(params)),
                owner=self._owner.token,
                owner_pid=os.getpid(),
            )

        return self._write(work)

    def checkpoint_reply(self, message: Ref, text: str, thinking: str = "") -> Future[None]:
        """Keeps what there is of a running reply; call it every second."""
        sql = "UPDATE messages SET text = ?, thinking = ?, updated = ?"
        return self._change_reply(message, sql, _text(text), _text(thinking), time.time())

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
        numbers = None if stats is None else json.dumps(dict(stats))
        sql = "UPDATE messages SET status = ?, text = ?, thinking = ?, stats_json = ?, note = ?, updated = ?"
        values = (status.value, _text(text), _text(thinking), numbers, _text(note), time.time())
        return self._change_reply(message, sql, *values, ends=True)

    def interrupt_dead(self) -> Future[int]:
        """Marks running replies of programs that have ended as interrupted; how many. Done on opening too."""

        def work() -> int:
            rows = self._writer.execute("SELECT DISTINCT owner FROM messages WHERE status = 'running'").fetchall()
            return sum(self._interrupt(o) for (o,) in rows if not is_alive(self._instances, o))

        return self._write(work)

    def flush(self, timeout: float | None = None) -> None:
        """Waits until every write so far is done. Raises TimeoutError."""
        self._write(lambda: None).result(timeout)

    def close(self, timeout: float = 30.0) -> None:
        """Finishes all writes, marks replies still running here as interrupted, and closes the file."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            last: Future[Any] = Future()
            self._queue.put((last, lambda: self._interrupt(self._owner.token)))
            self._queue.put(None)
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise UserError(f"The chat database {self.path} did not take all writes within {timeout:g} s.")
        with self._read_lock:
            self._reader.close()
        self._owner.release()
        last.result()

    # Inside

    def _read(self, sql: str, *values: object) -> list[sqlite3.Row]:
        with self._read_lock, clear_errors(self.path):
            if self._closed:
                raise RuntimeError("the store is closed")
            return self._reader.execute(sql, values).fetchall()

    def _write(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        with self._closing:
            if self._closed:
                raise RuntimeError("the store is closed")
            self._queue.put((future, work))
        return future

    def _write_loop(self) -> None:
        while (item := self._queue.get()) is not None:
            future, work = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                with clear_errors(self.path), transaction(self._writer):
                    result = work()
            except Exception as error:
                future.set_exception(error)
                self._tell(error)
            else:
                future.set_result(result)
            del future, work  # kept alive by nobody while the thread sleeps
        self._writer.close()

    def _tell(self, error: Exception) -> None:
        try:
            if self._on_error is not None:
                self._on_error(error)
        except Exception:  # a fault in the listener must not end the thread that keeps the chats
            logging.getLogger(__name__).exception("the store's error listener failed")

    def _insert(self, sql: str, *values: object) -> int:
        row = self._writer.execute(sql, values).lastrowid
        assert row is not None
        return row

    def _add(self, session: int, parent: Parent, role: Role, status: Status, **values: object) -> int:
        row = self._writer.execute("SELECT leaf FROM sessions WHERE id = ?", (session,)).fetchone()
        if row is None:
            raise UserError(f"There is no chat {session} in {self.path}.")
        above = row[0] if parent is At.LEAF else None if parent is None else _id(parent)
        now = time.time()
        record = {
            "session_id": session,
            "parent_id": above,
            "role": role.value,
            "status": status.value,
            "text": "",
            "created": now,
            "updated": now,
        } | values
        places = ", ".join("?" * len(record))
        message = self._insert(f"INSERT INTO messages ({', '.join(record)}) VALUES ({places})", *record.values())
        self._update_session(session, "leaf = ?", message)
        return message

    def _change_session(self, session: Ref, change: str, *values: object) -> Future[None]:
        return self._write(lambda: self._update_session(_id(session), change, *values))

    def _update_session(self, session: int, change: str, *values: object) -> None:
        if not self._writer.execute(f"UPDATE sessions SET {change} WHERE id = ?", (*values, session)).rowcount:
            raise UserError(f"There is no chat {session} in {self.path}.")

    def _change_reply(self, message: Ref, sql: str, *values: object, ends: bool = False) -> Future[None]:
        where = "WHERE id = ? AND status = 'running' AND owner = ?"

        def work() -> None:
            key = _id(message)
            if not self._writer.execute(f"{sql} {where}", (*values, key, self._owner.token)).rowcount:
                raise UserError(f"Reply {key} in {self.path} is not being written by this program.")
            if ends:
                sets = "UPDATE sessions SET updated = ? WHERE id = (SELECT session_id FROM messages WHERE id = ?)"
                self._writer.execute(sets, (time.time(), key))

        return self._write(work)

    def _interrupt(self, owner: str) -> int:
        sql = "UPDATE messages SET status = 'interrupted' WHERE status = 'running' AND owner = ?"
        return self._writer.execute(sql, (owner,)).rowcount


def title_from(text: str) -> str:
    """A title from a message: its first line with words, cut after a word to TITLE_LENGTH characters."""
    title = next((line for line in map(clean_line, text.splitlines()) if line), "")
    if len(title) <= TITLE_LENGTH:
        return title
    head = title[: TITLE_LENGTH - 1]
    if not title[TITLE_LENGTH - 1].isspace() and " " in head:
        head = head[: head.rindex(" ")]
    return head.rstrip() + "…"


def _text(text: str) -> str:
    """Text that UTF-8 can hold: a lone surrogate (from a terminal or a file name) becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if not _encodes(text) else text


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _id(ref: Ref) -> int:
    # the write a future stands for came earlier in the queue, so it is done
    return ref if isinstance(ref, int) else ref.result(timeout=0)


def _message(row: sqlite3.Row) -> MessageRow:
    values: dict[str, Any] = dict(row)
    for name in ("params", "stats"):
        stored = values.pop(f"{name}_json")
        values[name] = None if stored is None else json.loads(stored)
    values["role"] = Role(values["role"])
    values["status"] = Status(values["status"])
    return MessageRow(**values)
