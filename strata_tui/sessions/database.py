"""One SQLite file, written by one thread of its own and read by whoever asks."""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from ..errors import UserError
from .schema import clear_errors, connect, create_file, migrate, transaction

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


class Database:
    """Writes are done in order on one thread, each in a transaction; reads are done by the caller.

    Raises UserError when the file cannot be opened or read; a failed write raises it in its future, and
    `on_error` is told of it on the writer thread.
    """

    def __init__(self, path: Path, on_error: Callable[[Exception], None] | None = None) -> None:
        self.path = path
        self._on_error = on_error
        with clear_errors(path):
            create_file(path)
            self._writer = connect(path)
            try:
                migrate(self._writer, path)
                self._reader = connect(path)
            except BaseException:
                self._writer.close()
                raise
            self._reader.execute("PRAGMA query_only = ON")
        self._read_lock = threading.Lock()
        self._closing = threading.Lock()  # nothing is queued after the end mark
        self._closed = False
        self._queue: queue.SimpleQueue[tuple[Future[Any], Work[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_loop, name="store-writer", daemon=True)
        self._thread.start()

    def read(self, sql: str, *values: object) -> list[sqlite3.Row]:
        """All rows of a query."""
        with self._read_lock, clear_errors(self.path):
            if self._closed:
                raise RuntimeError("the store is closed")
            return self._reader.execute(sql, values).fetchall()

    def write(self, work: Work[T]) -> Future[T]:
        """Queues a piece of work, which gets the writing connection inside a transaction."""
        future: Future[T] = Future()
        with self._closing:
            if self._closed:
                raise RuntimeError("the store is closed")
            self._queue.put((future, work))
        return future

    def close(self, last: Work[None], timeout: float) -> Future[None]:
        """Finishes all writes, then `last`, and closes the file; what came of `last`, which is done.

        Raises UserError when that takes too long. A second call does nothing.
        """
        ending: Future[None] = Future()
        with self._closing:
            if self._closed:
                ending.set_result(None)
                return ending
            self._closed = True
            self._queue.put((ending, last))
            self._queue.put(None)
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise UserError(f"The chat database {self.path} did not take all writes within {timeout:g} s.")
        with self._read_lock:
            self._reader.close()
        return ending

    def _write_loop(self) -> None:
        while (item := self._queue.get()) is not None:
            future, work = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                with clear_errors(self.path), transaction(self._writer):
                    result = work(self._writer)
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
