"""What was sent before, for the prompt's up and down keys."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 500


class PromptHistory:
    """Sent messages, and the one that is being written as the last entry while older ones are looked at.

    What is changed in an older entry is kept until something is sent.
    """

    def __init__(self) -> None:
        self._entries: list[str] = []
        self._place: int | None = None  # of the entry that is shown; None: the one being written
        self._edited: dict[int | None, str] = {}

    @property
    def shown(self) -> bool:
        """Whether an entry is shown in the place of the one being written."""
        return self._place is not None

    def __len__(self) -> int:
        return len(self._entries)

    def extend(self, older: Iterable[str]) -> None:
        """Puts entries, oldest first, before those that are there."""
        before = [text for text in older if text.strip()]
        self._entries[:0] = before
        if self._place is not None:
            self._place += len(before)
        self._edited = {None if n is None else n + len(before): text for n, text in self._edited.items()}

    def add(self, text: str) -> None:
        """Takes what is sent; the same twice in a row is kept once."""
        self._place = None
        self._edited.clear()
        if text.strip() and self._entries[-1:] != [text]:
            self._entries.append(text)
            del self._entries[:-MOST]

    def older(self, shown: str) -> str | None:
        """The entry before the one shown now, whose text is `shown`; None at the first one."""
        place = len(self._entries) if self._place is None else self._place
        return self._go(place - 1, shown) if place > 0 else None

    def newer(self, shown: str) -> str | None:
        """The entry after the one shown now, at last the one being written; None when that is shown."""
        if self._place is None:
            return None
        place = self._place + 1
        return self._go(None if place == len(self._entries) else place, shown)

    def _go(self, place: int | None, shown: str) -> str:
        self._edited[self._place] = shown
        self._place = place
        return self._edited.get(place, "" if place is None else self._entries[place])
