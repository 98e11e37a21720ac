"""How often the screen takes what the engine has written: seldom enough that the engine is not slowed down by it."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.timer import Timer

SHARE = 0.02  # of a core that the screen may take, about, while a reply is written
SHORTEST, LONGEST = 1 / 15, 0.5  # seconds between two frames
_OLD = 0.7  # how much of the mean cost is that of the frames before


class Pacer:
    """Says how long to wait for the next frame: the longer, the more processor time the ones before took.

    Each processor's cores share their speed, and hyperthreads their units, so that even on a machine with a core to
    spare all that the screen does slows the engine. Keys do not wait: what they change is drawn at once.
    """

    def __init__(self, spent: Callable[[], float] = time.thread_time) -> None:
        """`spent`: processor time that the calling thread has used so far, in seconds."""
        self._spent = spent
        self._at = 0.0
        self._cost = SHARE * LONGEST  # of a frame, mean: dear, until it is known

    def begin(self) -> None:
        """A reply or a load begins; its frames cost about what those of the last one did."""
        self._at = self._spent()

    def wait(self) -> float:
        """Seconds until the next frame; to be called once between two of them."""
        now = self._spent()
        self._cost = _OLD * self._cost + (1 - _OLD) * (now - self._at)
        self._at = now
        return min(LONGEST, max(SHORTEST, self._cost / SHARE))


class Frames:
    """Has the engine listened to again and again while it has something to say, at a pacer's pace."""

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], Timer],
        expecting: Callable[[], bool],
        listen: Callable[[], None],
    ) -> None:
        """`later` calls a function after some seconds; `expecting` says whether `listen` is to be called again."""
        self._later, self._expecting, self._listen = later, expecting, listen
        self._pacer = Pacer()
        self._next: Timer | None = None

    @property
    def running(self) -> bool:
        """Whether there is a next frame."""
        return self._next is not None

    def begin(self) -> None:
        """Begins where the engine has something to say; while that runs, nothing."""
        if self._next is None and self._expecting():
            self._pacer.begin()
            self._next = self._later(SHORTEST, self._frame)

    def _frame(self) -> None:
        self._listen()
        self._next = self._later(self._pacer.wait(), self._frame) if self._expecting() else None
