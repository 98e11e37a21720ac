"""Numbers as the screen shows them. Unknown (None) is a dash, never 0."""

from __future__ import annotations

from collections.abc import Iterable

from ..numbers import grouped

DASH = "–"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def size(value: int | None) -> str:
    """Bytes in a fitting unit: `21.7 GiB`."""
    if value is None:
        return DASH
    power = _power(value)
    return f"{_scaled(value, power)} {_UNITS[power]}"


def short_size(value: int | None) -> str:
    """Bytes in few cells: `21.7G`, `180M`, `0`."""
    if not value:
        return DASH if value is None else "0"
    power = _power(value)
    number = f"{value / 1024**power:.0f}" if value >= 100 * 1024**power else _scaled(value, power)
    return number + _UNITS[power][0]


def size_of(part: int | None, whole: int | None) -> str:
    """A part of a whole in the whole's unit: `1.7 / 24.0 GiB`."""
    if whole is None:
        return size(part) if part is None else f"{size(part)} of {DASH}"
    power = _power(whole)
    return f"{DASH if part is None else _scaled(part, power)} / {_scaled(whole, power)} {_UNITS[power]}"


def short_size_of(part: int | None, whole: int | None) -> str:
    """A part of a whole in few cells: `1.7/24.0G`."""
    return size_of(part, whole).replace(" ", "").removesuffix("iB").removesuffix("B")


def count(value: int | None) -> str:
    """A whole number in groups of three: `16 384`."""
    return DASH if value is None else grouped(value)


def percent(ratio: float | None, digits: int = 1) -> str:
    """A ratio as `93.1 %`. Rounds down, so that 100 % means all."""
    if ratio is None:
        return DASH
    scale = 10**digits
    return f"{int(ratio * 100 * scale + 1e-9) / scale:.{digits}f} %"


def rate(value: float | None, unit: str = "tok/s") -> str:
    """A rate with its unit: `18.3 tok/s`; without one, in few cells: `42.0/s`."""
    if value is None:
        return DASH
    return f"{value:,.1f}".replace(",", " ") + (f" {unit}" if unit else "/s")


def byte_rate(value: float | None) -> str:
    """Bytes a second in few cells: `3.1G/s`."""
    return DASH if value is None else f"{short_size(int(value))}/s"


def seconds(value: float | None) -> str:
    """A duration: `0.94 s`, `22.5 s`, `3 min 05 s`."""
    if value is None:
        return DASH
    if value < 10:
        return f"{value:.2f} s"
    if value < 60:
        return f"{value:.1f} s"
    return f"{int(value) // 60} min {int(value) % 60:02d} s"


def bar(ratio: float | None, width: int) -> str:
    """A meter of `width` cells; empty while the ratio is unknown."""
    if ratio is None:
        return "░" * width
    filled = min(width, max(0, round(ratio * width)))
    return "█" * filled + "░" * (width - filled)


def spark(values: Iterable[float | None], width: int, top: float | None = None) -> str:
    """The last `width` values as a line of blocks; unknown ones are blank. `top`: full height (None: the largest)."""
    shown = list(values)[-width:]
    known = [v for v in shown if v is not None]
    high = top if top is not None else max(known, default=0.0)
    cells = []
    for value in shown:
        if value is None:
            cells.append(" ")
        elif high <= 0:
            cells.append(_EIGHTHS[1])
        else:
            cells.append(_EIGHTHS[max(1, min(7, round(value / high * 7)))])  # never full: rows stay apart
    return "".join(cells).rjust(width)


def _power(value: int) -> int:
    power = 0
    while power < len(_UNITS) - 1 and value >= 1024 ** (power + 1):
        power += 1
    return power


def _scaled(value: int, power: int) -> str:
    return str(value) if power == 0 else f"{value / 1024**power:.1f}"
