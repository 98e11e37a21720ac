"""What a window of n tokens costs, c(n), and what that and the drafts' acceptance allow at most."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import UserError
from .prompts import PROMPTS
from .report import Spread, table

if TYPE_CHECKING:
    from ..engine.opening import OpenModel

LONGEST = 5  # tokens of a window: with four drafts
_WARM = 3  # windows of each length that do not count


@dataclass(frozen=True, slots=True)
class Curve:
    """Milliseconds of each window by its length, and of a plain token right behind a window."""

    windows: dict[int, list[float]]
    behind: list[float]

    @property
    def plain(self) -> float:
        return statistics.median(self.windows[1])

    def cost(self, n: int) -> float:
        """c(n) / c(1)."""
        return statistics.median(self.windows[n]) / self.plain

    def __str__(self) -> str:
        head = ["tokens of a window", *map(str, self.windows), "1, behind a window of 2"]
        times = [*(str(Spread.of(t)) for t in self.windows.values()), str(Spread.of(self.behind))]
        ratios = [*(f"{self.cost(n):.2f}" for n in self.windows), f"{statistics.median(self.behind) / self.plain:.2f}"]
        return table(head, [["ms", *times], ["c(n)/c(1)", *ratios]])


def measure(opened: OpenModel, rounds: int) -> Curve:
    """Windows of 1 to LONGEST tokens in turn, right through a text; nothing is drafted or taken back."""
    text = [t for kind in PROMPTS.values() for prompt in kind for t in opened.model.tokenize(prompt + "\n")]
    curve = Curve({n: [] for n in range(1, LONGEST + 1)}, [])
    opened.prefix.clear()
    opened.tier.set_phase(opened.core.PHASE_DECODE)
    at = 0

    def decode(n: int) -> float:
        nonlocal at
        if at + n > opened.context.size:
            opened.prefix.clear()
            at = 0
        tokens = [text[(at + i) % len(text)] for i in range(n)]
        begun = time.perf_counter()
        status = opened.context.decode(tokens, at, all_logits=True)
        opened.context.logits(n - 1)
        took = time.perf_counter() - begun
        if status != 0:
            raise UserError(f"The engine stopped while computing (llama_decode {status}): {opened.tier.last_error()}.")
        at += n
        return 1e3 * took

    for n in range(1, LONGEST + 1):
        times = [decode(n) for _ in range(_WARM + rounds)]  # in a row, as a reply has them
        curve.windows[n] += times[_WARM:]
    for _ in range(rounds):
        decode(2)
        curve.behind.append(decode(1))
    opened.prefix.clear()
    return curve


def most(curve: Curve, acceptance: Sequence[float | None], draft: float) -> tuple[float, int]:
    """(times the speed of plain decoding, drafts) that windows of a fixed length reach at best with such costs.

    `acceptance`: of the first draft, of the second, ..., each of all that were offered there. `draft`: milliseconds
    of drafting one.
    """
    best, drafts, tokens = 1.0, 0, 1.0
    for k, share in enumerate(acceptance[: LONGEST - 1], 1):
        if share is None:
            break
        tokens += share
        pace = tokens / (curve.cost(k + 1) + k * draft / curve.plain)
        if pace > best:
            best, drafts = pace, k
    return best, drafts
