"""Numbers in words for people; the screen's own forms are in ui/format.py."""

from __future__ import annotations


def grouped(value: int) -> str:
    """A whole number in groups of three: `16 384`."""
    return f"{value:,}".replace(",", " ")
