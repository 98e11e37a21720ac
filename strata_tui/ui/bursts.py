"""Pastes that arrive as keys, from terminals that do not mark them (bracketed paste)."""

from __future__ import annotations

from textual.events import Key

GAP_SECONDS = 0.005  # nobody types two keys within this time
LEAST = 8  # keys in a row, so close together, before an enter among them is taken for part of a paste
HOLD_SECONDS = 0.05


class Burst:
    """Follows the keys' times, which the thread that reads the terminal sets.

    A line that ends with enter may be a paste, or typed while the connection slept, or sent by another
    program. Only what follows the enter at once tells: so many keys, an enter, and more, all in one go,
    are a paste, and none of its line ends sends.
    """

    def __init__(self) -> None:
        self._last = float("-inf")
        self._last_was_enter = False
        self._run = 0
        self.keys = 0  # seen in all
        self.pasting = False  # the key just seen belongs to a paste

    @property
    def fast(self) -> bool:
        """Whether the key just seen ends so many that nobody types them."""
        return self._run >= LEAST

    def key(self, event: Key) -> None:
        """Takes the next key."""
        self.keys += 1
        close = event.time - self._last < GAP_SECONDS
        if not close:
            self._run, self.pasting = 0, False
        elif self._last_was_enter and self.fast:
            self.pasting = True
        self._run += 1
        self._last, self._last_was_enter = event.time, event.key == "enter"
