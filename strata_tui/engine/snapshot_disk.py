"""Snapshots on the disk: one file a chat in the cache folder, the least used ones removed for a budget.

The files of all models share the budget; only those that fit the open model are read. One thread writes; errors of
the disk are logged and change nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from logging import Logger
from pathlib import Path

from . import snapshot_file
from .snapshot_file import Head, Identity, KvSnapshot, Stopped
from .snapshot_names import SUFFIX, file_name, parts_of

MOST_FILES = 256
FREE = 1 << 30  # bytes that stay free on the file system
_ABANDONED = 3600.0  # seconds after which an unfinished file is another program's no more


class Disk:
    """Those that fit one open model. `queued` ones can be had at once; all but `close` return without waiting."""

    def __init__(self, folder: Path, identity: Identity, budget: int, log: Logger) -> None:
        """`budget`: bytes of all files in `folder`."""
        self._folder, self._identity, self._budget, self._log = folder, identity, budget, log
        text = json.dumps(dict(identity), sort_keys=True).encode()
        self._name = hashlib.blake2b(text, digest_size=8).hexdigest()
        self._lock = threading.Lock()  # guards the four below
        self._heads: dict[str, Head] = {}
        self._queue: dict[str, KvSnapshot] = {}
        self._written: set[str] = set()  # by this one
        self._bytes = 0  # of all files, as of the last look
        self._until = float("inf")  # monotonic; no writing goes on after it
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="strata-snapshots")
        for path in self._own():
            self._note(path)
        self._make_room()

    @property
    def nbytes(self) -> int:
        """Of all files."""
        return self._bytes

    @property
    def queued(self) -> int:
        """Bytes of RAM held by snapshots that wait to be written."""
        with self._lock:
            return sum(s.nbytes for s in self._queue.values())

    def fits(self, nbytes: int) -> bool:
        return nbytes <= self._budget

    def heads(self) -> list[Head]:
        """Of the files that fit the open model."""
        with self._lock:
            return list(self._heads.values())

    def waiting(self) -> list[KvSnapshot]:
        """Those that are not written yet."""
        with self._lock:
            return list(self._queue.values())

    def holds(self, snapshot: KvSnapshot) -> bool:
        """Whether the chat's file holds the same tokens, and the way back to as many."""
        with self._lock:
            head = self._heads.get(snapshot.chat)
        return (
            head is not None
            and head.tokens.tolist() == snapshot.tokens.tolist()
            and len(head.positions) >= len(snapshot.checkpoints)
        )

    def put(self, snapshot: KvSnapshot) -> None:
        """Has a snapshot written, in place of the chat's earlier one."""
        with self._lock:
            self._queue[snapshot.chat] = snapshot
        self._writer.submit(self._write, snapshot)

    def read(self, chat: str) -> KvSnapshot | None:
        """The chat's snapshot, checked; None, and no such file any more, where it is damaged or foreign."""
        path = self._path(chat)
        begun = time.perf_counter()
        try:
            snapshot = snapshot_file.read(path, self._identity)
            if snapshot.chat != chat:
                raise ValueError("it is another chat's")
        except (OSError, ValueError) as error:
            self._ignore(path, error)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        took = (time.perf_counter() - begun) * 1e3
        self._log.info("snapshot: chat %s read from %s, %d bytes, %.1f ms", chat, path, snapshot.nbytes, took)
        return snapshot

    def forget(self, chats: Iterable[str]) -> None:
        """Removes the files of some chats, also those that are still to be written."""
        gone = set(chats)
        with self._lock:
            for chat in gone:
                self._queue.pop(chat, None)
                self._heads.pop(chat, None)
        self._writer.submit(self._remove_chats, gone)

    def distrust(self) -> None:
        """Removes what was written since the model was opened."""
        with self._lock:
            gone = self._written | set(self._queue)
        self.forget(gone)

    def settle(self) -> None:
        """Waits until everything so far is written."""
        self._writer.submit(lambda: None).result()

    def close(self, until: float) -> None:
        """Waits for the writer, which stops at `until` (monotonic); what it could not finish is lost."""
        self._until = until
        self._writer.shutdown(wait=True)

    # On the writer's thread, but for the scan at the start

    def _write(self, snapshot: KvSnapshot) -> None:
        chat, begun = snapshot.chat, time.perf_counter()
        if not self._wanted(snapshot):
            return
        path = self._path(chat)
        try:
            if not self._make_room(snapshot.nbytes, snapshot.used, path):
                raise OSError("those used since then take the budget")
            if self._folder.exists() and shutil.disk_usage(self._folder).free < snapshot.nbytes + FREE:
                raise OSError("too little is free on the disk")
            size = snapshot_file.write(path, snapshot, self._identity, lambda: time.monotonic() > self._until)
            took = (time.perf_counter() - begun) * 1e3
            self._log.info("snapshot: chat %s written to %s, %d bytes, %.1f ms", chat, path, size, took)
            if self._wanted(snapshot):  # else its file is removed by what follows in the queue
                self._note(path)
                with self._lock:
                    self._written.add(chat)
        except Stopped:
            self._log.warning("snapshot: chat %s was not written: there was no time left", chat)
        except OSError as error:
            self._log.warning("snapshot: chat %s was not written to %s: %s", chat, path, error)
        finally:
            with self._lock:
                if self._queue.get(chat) is snapshot:
                    del self._queue[chat]
        self._make_room()

    def _wanted(self, snapshot: KvSnapshot) -> bool:
        """Whether it was not forgotten meanwhile, and no newer one of its chat follows."""
        with self._lock:
            return self._queue.get(snapshot.chat) is snapshot

    def _note(self, path: Path) -> None:
        """Takes the file's head into the index."""
        try:
            head = snapshot_file.read_head(path, self._identity)
            if path != self._path(head.chat):
                raise ValueError("it is another chat's")
        except (OSError, ValueError) as error:
            self._ignore(path, error)
            return
        with self._lock:
            self._heads[head.chat] = head

    def _ignore(self, path: Path, error: Exception) -> None:
        self._log.warning("snapshot: %s is ignored and removed: %s", path, error)
        self._remove(path)

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._log.warning("snapshot: %s cannot be removed: %s", path, error)
        named = parts_of(path.name)
        if named is not None and named[0] == self._name:
            with self._lock:
                self._heads.pop(named[1], None)

    def _remove_chats(self, chats: set[str]) -> None:
        for path, _, _ in self._files():
            named = parts_of(path.name)
            if named is not None and named[1] in chats:
                self._remove(path)
        self._make_room()

    def _make_room(self, nbytes: int = 0, used: float = float("inf"), replaced: Path | None = None) -> bool:
        """Removes files, the least used first, until `nbytes` more fit; whether they do now.

        None that was used after `used` is removed; `replaced` does not count.
        """
        files = [file for file in sorted(self._files(), key=lambda file: file[1]) if file[0] != replaced]
        total = sum(size for _, _, size in files)
        while total + nbytes > self._budget or len(files) + (nbytes > 0) > MOST_FILES:
            if not files or files[0][1] > used:
                return False
            path, _, size = files.pop(0)
            self._log.info("snapshot: %s is removed: %d bytes over the budget", path, total + nbytes - self._budget)
            self._remove(path)
            total -= size
        self._bytes = total
        return True

    def _own(self) -> Iterator[Path]:
        for path, _, _ in self._files():
            named = parts_of(path.name)
            if named is not None and named[0] == self._name:
                yield path

    def _files(self) -> Iterator[tuple[Path, float, int]]:
        """(path, when it was used, bytes) of every snapshot in the folder. What unfinished writing left is removed."""
        try:
            entries = list(os.scandir(self._folder))
        except OSError:
            return
        for entry in entries:
            try:
                about = entry.stat(follow_symlinks=False)
                if entry.name.endswith(snapshot_file.TEMPORARY) and time.time() - about.st_mtime > _ABANDONED:
                    os.unlink(entry.path)
            except OSError:
                continue  # another program has removed it
            if entry.name.endswith(SUFFIX) and parts_of(entry.name) is not None:
                yield Path(entry.path), about.st_mtime, about.st_size

    def _path(self, chat: str) -> Path:
        return self._folder / file_name(self._name, chat)
