"""Checkpoints: places inside the live sequence that a memory which cannot be cut back can return to.

A recurrent state, or a sliding window that has moved on, knows nothing of earlier positions. What it was at some of
them is kept in RAM: at the ends of turns, near the end of a prompt, and now and then while a long one is read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from logging import Logger
from typing import Protocol

from .llama_state import State

MOST = 4  # of one sequence


class Saves(Protocol):
    """A sequence's memory that can be saved in part."""

    def state_size(self, *, partial: bool = False) -> int: ...
    def state(self, *, partial: bool = False) -> State | None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """What of the memory cannot be cut back, as it was with `position` tokens."""

    position: int
    data: State
    passing: bool = False  # taken on the way, in the middle of a prompt


class Checkpoints:
    """Those of the live sequence, by position."""

    def __init__(self, memory: Saves, log: Logger, budget: int = 0) -> None:
        """`budget`: bytes of RAM for all of them; 0: none are taken."""
        self._memory, self._log, self._budget = memory, log, budget
        self._all: list[Checkpoint] = []

    @property
    def wanted(self) -> bool:
        return self._budget > 0

    @property
    def nbytes(self) -> int:
        return sum(c.data.nbytes for c in self._all)

    @property
    def last(self) -> int:
        """Position of the last one, 0 without any."""
        return self._all[-1].position if self._all else 0

    def take(self, position: int, *, passing: bool = False, early: bool = False) -> None:
        """The memory holds exactly `position` tokens now. Those before it give way where there are too many.

        `early`: it is of use only once more is read, so the last one before it does not give way.
        """
        if position <= 0 or position == self.last or not self.wanted:
            return
        begun = time.perf_counter()
        size = self._memory.state_size(partial=True)
        if size > self._budget or (early and self._all and size + self._all[-1].data.nbytes > self._budget):
            return
        try:
            data = self._memory.state(partial=True)
        except MemoryError:
            data = None
        if data is None:
            self._log.warning("checkpoint: none at %d tokens: there is no memory for it", position)
            return
        self.cut(position)
        self._all = [c for c in self._all if not c.passing]
        self._all.append(Checkpoint(position, data, passing))
        while len(self._all) > MOST or self.nbytes > self._budget:
            self._all.pop(0)
        took = (time.perf_counter() - begun) * 1e3
        self._log.info("checkpoint: %d tokens, %d bytes, %.1f ms", position, data.nbytes, took)

    def at_most(self, position: int) -> Checkpoint | None:
        """The last one that is not behind `position` tokens."""
        return next((c for c in reversed(self._all) if c.position <= position), None)

    def cut(self, position: int) -> None:
        """The sequence has `position` tokens now: those behind are of no use any more."""
        self._all = [c for c in self._all if c.position <= position]

    def before(self, position: int) -> tuple[Checkpoint, ...]:
        """Those in front of `position`: what a snapshot of the sequence keeps beside its own end."""
        return tuple(c for c in self._all if c.position < position)

    def adopt(self, restored: Iterable[Checkpoint]) -> None:
        """Those of a snapshot that has become the live sequence."""
        self._all = sorted(restored, key=lambda c: c.position) if self.wanted else []
