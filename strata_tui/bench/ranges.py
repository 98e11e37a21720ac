"""Number types of the measurements' flags: argparse says in one sentence what is out of range."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections.abc import Callable


def whole(low: int) -> Callable[[str], int]:
    """A whole number of at least `low`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low:
            raise ArgumentTypeError(f"{text!r} is not a whole number of at least {low}")
        return value

    return parse


def from_zero(text: str) -> float:
    """A finite number of 0 or more."""
    value = _number(text)
    if not value >= 0:
        raise ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


def above_zero(text: str) -> float:
    """A finite number above 0."""
    value = _number(text)
    if not value > 0:
        raise ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def fraction(text: str) -> float:
    """A number above 0 and at most 1."""
    value = _number(text)
    if not 0 < value <= 1:
        raise ArgumentTypeError(f"{text!r} is not a share above 0 and at most 1")
    return value


def _number(text: str) -> float:
    """NaN, which no range holds, for what is no finite number."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan
