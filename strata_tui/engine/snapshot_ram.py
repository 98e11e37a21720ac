"""Snapshots in RAM within a budget, one a chat, the last used last."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable

from .snapshot_file import KvSnapshot


class Ram:
    """Belongs to the thread that decodes; `nbytes` may be asked from any."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.nbytes = 0
        self._chats: OrderedDict[str, KvSnapshot] = OrderedDict()

    def get(self, chat: str) -> KvSnapshot | None:
        return self._chats.get(chat)

    def all(self) -> list[KvSnapshot]:
        """The last used one first."""
        return list(reversed(self._chats.values()))

    def touch(self, chat: str) -> None:
        """Its snapshot was of use."""
        if chat in self._chats:
            self._chats.move_to_end(chat)
            self._chats[chat].used = time.time()

    def make_room(self, nbytes: int) -> list[KvSnapshot]:
        """Takes out the least used ones until `nbytes` more fit."""
        out: list[KvSnapshot] = []
        while self._chats and self.nbytes + nbytes > self.budget:
            out.append(self._chats.popitem(last=False)[1])
            self.nbytes -= out[-1].nbytes
        return out

    def put(self, snapshot: KvSnapshot) -> list[KvSnapshot]:
        """Keeps one in place of its chat's; those that had to give way."""
        self.drop([snapshot.chat])
        out = self.make_room(snapshot.nbytes)
        self._chats[snapshot.chat] = snapshot
        self.nbytes += snapshot.nbytes
        return out

    def drop(self, chats: Iterable[str]) -> None:
        for chat in chats:
            if (gone := self._chats.pop(chat, None)) is not None:
                self.nbytes -= gone.nbytes

    def clear(self) -> None:
        self._chats.clear()
        self.nbytes = 0
