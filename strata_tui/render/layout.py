"""Lines of `Content`: splitting, wrapping, prefixing. Widths are terminal cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len
from textual.content import Content

TAB_SIZE: Final = 4
_MIN_WIDTH: Final = 8
_JOINERS: Final = frozenset("\u200d\ufe0f")


def split_lines(content: Content) -> list[Content]:
    """One `Content` a line; an empty text is one empty line."""
    return content.split("\n", allow_blank=True)


def join_lines(lines: Sequence[Content]) -> Content:
    return Content("\n").join(lines)


def wrap_lines(lines: Sequence[Content], width: int | None) -> list[Content]:
    """Word wrap to `width` cells; words longer than a line are cut. None leaves the lines as they are."""
    if width is None:
        return list(lines)
    wrapped: list[Content] = []
    for line in lines:
        if len(line) <= width and line.plain.isascii():
            wrapped.append(line)
        else:
            wrapped.extend(line.wrap(width))
    return wrapped


def inner_width(width: int | None, taken: int) -> int | None:
    """Cells left beside a prefix of `taken` cells; never so few that nested text becomes a column of letters."""
    return None if width is None else max(_MIN_WIDTH, width - taken)


def prefixed(lines: Sequence[Content], first: Content, rest: Content) -> list[Content]:
    """`lines` with `first` before the first and `rest` before the others."""
    empty = Content()
    return [empty.join((rest if index else first, line)) for index, line in enumerate(lines)]


def cut_offsets(text: str, width: int) -> list[int]:
    """Offsets that cut `text` into pieces of at most `width` (>= 2) cells, never inside a joined character."""
    if text.isascii():
        return list(range(width, len(text), width))
    offsets: list[int] = []
    start = position = 0
    while position < len(text):
        end = _cluster_end(text, position)
        if position > start and cell_len(text[start:end]) > width:
            offsets.append(position)
            start = position
        position = end
    return offsets


def _cluster_end(text: str, start: int) -> int:
    """Where the character at `start` ends, with the marks, joiners and joined characters that follow it."""
    end = start + 1
    while end < len(text):
        if text[end] == "\u200d":
            end += 2
        elif text[end] in _JOINERS or cell_len(text[end]) == 0:
            end += 1
        else:
            break
    return min(end, len(text))
