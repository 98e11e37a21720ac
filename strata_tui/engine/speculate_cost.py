"""What windows cost, measured while they run. Pure.

A window of another length than the one before costs more, and so does the next: graphs are built and recorded for it.
So the cost of a length is the median of its third window in a row and those that follow, and what a change costs is
measured by itself, on the first and the second.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

RECENT = 9  # measurements of one kind that count
_UNSTEADY = 2  # windows in a row that still pay for the change of length
_STALE = 256  # rounds after which a window's cost is doubted
_SLOPE = 0.1  # cost of one more row, in plain tokens, while none was measured
_NOTHING = 0.1  # of a plain token
_UNLIKELY = 1.5  # times its tokens one by one: no window costs more


def _few() -> deque[float]:
    return deque(maxlen=RECENT)


@dataclass(slots=True)
class Costs:
    """Seconds. `length`: of the last window; 0: something else came in between."""

    length: int = 0
    plain: float | None = None  # of a window of one token: plain decoding
    since_plain: int = 0  # rounds since that was measured
    _in_a_row: int = 0
    _paused: bool = True  # it was not another length that this row came behind
    _windows: dict[int, deque[tuple[int, float]]] = field(default_factory=dict)  # (round, seconds)
    _extra: list[deque[float]] = field(default_factory=lambda: [_few() for _ in range(_UNSTEADY)])
    _round: int = 0

    def measured(self, n: int) -> int:
        """How often, of late."""
        return len(self._windows.get(n, ()))

    @property
    def longest(self) -> int:
        """Window that was measured."""
        return max(self._windows, default=0)

    @property
    def known(self) -> bool:
        """Whether changes were measured."""
        return all(self._extra)

    @property
    def change(self) -> float:
        """What a window of another length costs more, with those behind it."""
        return max(0.0, sum(median(extra) for extra in self._extra if extra))

    def window(self, n: int, *, sure: int = 1) -> float | None:
        """Cost of a window of n tokens: measured lately, else drawn through those that were; None: unknown.

        `sure`: fewer measurements of n itself do not count.
        """
        plain = self.plain
        if plain is None or n == 1:
            return plain
        counted = [m for m, times in self._windows.items() if m > 1 and (m != n or len(times) >= sure)]
        fresh = {m: new for m in counted if (new := self._lately(m))}
        # without a fresh one, old ones are better than a guess
        known = fresh or {m: [s for _, s in self._windows[m]] for m in counted}
        costs = {1: plain, **{m: min(max(plain, median(times)), _UNLIKELY * m * plain) for m, times in known.items()}}
        above = [cost for m, cost in costs.items() if m >= n]
        below = max(m for m in costs if m <= n)
        if below == n or (above and min(above) <= costs[below]):
            return min(above)  # a longer window never costs less
        each = (costs[below] - plain) / (below - 1) if below > 1 else _SLOPE * plain
        drawn = costs[below] + each * (n - below)
        return min([drawn, *above])

    def _lately(self, n: int) -> list[float]:
        return [seconds for at, seconds in self._windows[n] if self._round - at <= _STALE]

    def usual(self, n: int) -> float | None:
        """What a window of n tokens is expected to cost now, a change of length included; None: unknown."""
        cost = self.window(n, sure=3)
        row = self._in_a_row if n == self.length else 0
        changed = self.length > 0 and (row == 0 or not self._paused)
        if cost is None or row >= _UNSTEADY or not changed or not self._extra[row]:
            return cost
        return cost + max(0.0, median(self._extra[row]))

    def note(self, n: int, seconds: float) -> None:
        """A window of n tokens took so long."""
        self._round += 1
        if n != self.length:
            self._paused = self.length == 0
            self._in_a_row = 0
        self.since_plain += 1
        if self._in_a_row >= _UNSTEADY or self._all_alike():
            times = self._windows.setdefault(n, deque(maxlen=RECENT))
            times.append((self._round, seconds))
            if n == 1:
                self.plain = median(s for _, s in times)
                self.since_plain = 0
        if self._in_a_row < _UNSTEADY and not self._paused and self.measured(n):
            self._extra[self._in_a_row].append(seconds - median(s for _, s in self._windows[n]))
        self._in_a_row += 1
        self.length = n

    def _all_alike(self) -> bool:
        """Whether a change of length costs next to nothing."""
        return self.known and self.plain is not None and self.change < _NOTHING * self.plain

    def paused(self) -> None:
        """Something else than windows was computed: what comes next tells nothing of a change of length."""
        self.length = 0
