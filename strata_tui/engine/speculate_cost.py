"""What windows cost, measured while they run. Pure.

A window of another length than the one before costs more, and so does the next: graphs are built and recorded for it.
So the cost of a length is the mean of its third window in a row and those that follow, and what a change costs is
measured by itself, on the first and the second. The mean: where experts are missed some windows wait and most do not,
and the median would leave that wait out. What something else held up counts as a little more than is usual.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean, median

RECENT = 48  # windows of a length that count, and drafts ...
_PLAIN = 96  # ... and plain tokens: all others are compared with these, so they must be known best
_EVERY = 4  # measurements after which the mean of enough of them is taken again
_MOST = 2.0  # times the median that one counts for
_UNSTEADY = 2  # windows in a row that still pay for the change of length
_STALE, _OLD = 256, 1024  # rounds after which a length's cost is doubted, and a measurement forgotten
_SLOPE = 0.1  # cost of one more row, in plain tokens, while none was measured
_NOTHING = 0.1  # of a plain token
_UNLIKELY = 1.5  # times its tokens one by one: no window costs more


def typical(times: Iterable[float]) -> float:
    """Their mean, where none is far above the median."""
    times = list(times)
    most = _MOST * median(times)
    return fmean(min(t, most) for t in times)


def _few() -> deque[float]:
    return deque(maxlen=9)


@dataclass(slots=True)
class _Cost:
    """Of windows of one length: (round, seconds) of the last ones, and their mean."""

    times: deque[tuple[int, float]]
    mean: float = 0.0
    added: int = 0

    def add(self, now: int, seconds: float) -> None:
        while self.times and now - self.times[0][0] > _OLD:
            self.times.popleft()
        self.times.append((now, seconds))
        self.added += 1
        if len(self.times) < 4 * _EVERY or self.added % _EVERY == 0:
            self.mean = typical(s for _, s in self.times)


@dataclass(slots=True)
class Costs:
    """Seconds. `length`: of the last window; 0: something else came in between."""

    length: int = 0
    plain: float | None = None  # of a window of one token: plain decoding
    since_plain: int = 0  # rounds since that was measured
    _in_a_row: int = 0
    _paused: bool = True  # it was not another length that this row came behind
    _windows: dict[int, _Cost] = field(default_factory=dict)
    _extra: list[deque[float]] = field(default_factory=lambda: [_few() for _ in range(_UNSTEADY)])
    _round: int = 0

    def measured(self, n: int) -> int:
        """How often, of late."""
        return len(self._windows[n].times) if n in self._windows else 0

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
        counted = {m: c for m, c in self._windows.items() if m > 1 and (m != n or len(c.times) >= sure)}
        # without a fresh one, old ones are better than a guess
        known = {m: c for m, c in counted.items() if self._round - c.times[-1][0] <= _STALE} or counted
        costs = {1: plain, **{m: min(max(plain, c.mean), _UNLIKELY * m * plain) for m, c in known.items()}}
        above = [cost for m, cost in costs.items() if m >= n]
        below = max(m for m in costs if m <= n)
        if below == n or (above and min(above) <= costs[below]):
            return min(above)  # a longer window never costs less
        each = (costs[below] - plain) / (below - 1) if below > 1 else _SLOPE * plain
        drawn = costs[below] + each * (n - below)
        return min([drawn, *above])

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
            if n not in self._windows:
                self._windows[n] = _Cost(deque(maxlen=_PLAIN if n == 1 else RECENT))
            self._windows[n].add(self._round, seconds)
            if n == 1:
                self.plain = self._windows[1].mean
                self.since_plain = 0
        if self._in_a_row < _UNSTEADY and not self._paused and self.measured(n):
            self._extra[self._in_a_row].append(seconds - self._windows[n].mean)
        self._in_a_row += 1
        self.length = n

    def _all_alike(self) -> bool:
        """Whether a change of length costs next to nothing."""
        return self.known and self.plain is not None and self.change < _NOTHING * self.plain

    def paused(self) -> None:
        """Something else than windows was computed: what comes next tells nothing of a change of length."""
        self.length = 0
