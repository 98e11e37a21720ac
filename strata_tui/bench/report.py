"""What every measurement prints beside its numbers: the machine, the spread, the table."""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of some runs."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.1f} ({self.low:.1f} to {self.high:.1f})"


def bootstrap_ratio(
    a: Sequence[float], b: Sequence[float], resamples: int = 10_000, seed: int = 1
) -> tuple[float, float, float]:
    """The geometric mean of the paired ratios a/b, and the ends of its bootstrap 95 % interval (percentiles).

    a and b: positive, as many of one as of the other. With one pair the interval is that pair.
    """
    logs = np.log(np.asarray(a, np.float64) / np.asarray(b, np.float64))
    rng = np.random.default_rng(seed)
    means = logs[rng.integers(0, len(logs), (resamples, len(logs)))].mean(axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    return float(np.exp(logs.mean())), float(np.exp(low)), float(np.exp(high))


def wilson(hits: int, tries: int, z: float = 1.96) -> str:
    """A share with its 95 % interval."""
    p = hits / tries
    centre, spread = p + z * z / (2 * tries), z * math.sqrt(p * (1 - p) / tries + z * z / (4 * tries * tries))
    scale = 1 + z * z / tries
    return f"{p:.1%} ({(centre - spread) / scale:.1%} to {(centre + spread) / scale:.1%})"


def machine(device: str) -> str:
    """One line: processor, cores this process may use, device."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            model = next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        pass  # the architecture's name has to do
    return f"{model}, {len(os.sched_getaffinity(0))} cores; {device}"


def amount(n: int) -> str:
    """Bytes as GiB, or as MiB below one GiB."""
    return f"{n / 2**30:.2f} GiB" if n >= 2**30 else f"{n / 2**20:.1f} MiB"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table, columns padded."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([line(head), "| " + " | ".join("-" * width for width in widths) + " |", *map(line, rows)])
