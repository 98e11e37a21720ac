"""Pieces of the engine panel: rows, meters and trends, and how rows of many sections fit into its height."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from textual.content import Content

from ..text import clean_line
from . import format as f

OTHERS, _FREE = "░·"  # cells of a meter with parts
_FULL = 0.9  # from here a meter of memory or context is drawn in the warning colour


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the panel. `rank`: 0 is always there; of the others those of the highest go first, the last first,
    where the height is short.
    """

    text: Content
    rank: int = 0
    cut: Content | None = None  # in place of the text where the next row is left out, and was to end its sentence


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, with what stands on its right, and the rows under it."""

    heading: str
    rows: Sequence[Row]
    beside: str = ""


def join_sections(sections: Sequence[Section], width: int, height: int, *, whole: bool = False) -> Content:
    """One text of all sections, parted by empty lines where these fit, too.

    What does not fit is left out by its rank; `whole`: nothing is, for there can be scrolled.
    """
    return Content("\n").join(_lines(sections, width, height, whole))


def join_columns(sections: Sequence[Section], width: int, height: int, gap: int, *, whole: bool = False) -> Content:
    """The same in two columns of `width` cells, about equally high, `gap` cells apart, with a line between them."""

    def higher(left: int) -> int:
        return max(sum(1 + len(s.rows) for s in part) for part in (sections[:left], sections[left:]))

    left = min(range(1, len(sections) + 1), key=higher)
    both = [_lines(part, width, height, whole) for part in (sections[:left], sections[left:])]
    between = Content.styled("│".rjust(gap // 2 + 1).ljust(gap), "$muted")
    rows = []
    for one, two in zip_longest(*both, fillvalue=Content()):
        cut = one.truncate(width, ellipsis=True)
        rows.append(Content.assemble(cut, " " * (width - cut.cell_length), between, two.truncate(width, ellipsis=True)))
    return Content("\n").join(rows)


def _lines(sections: Sequence[Section], width: int, height: int, whole: bool) -> list[Content]:
    height -= len(sections)
    rows = [row for section in sections for row in section.rows]
    order = sorted(range(len(rows)), key=lambda n: (rows[n].rank, n), reverse=True)
    spare = [n for n in order if rows[n].rank > 0]
    gone = set() if whole else {id(rows[n]) for n in spare[: max(0, len(rows) - height)]}
    gaps = len(rows) - len(gone) + len(sections) - 1 <= height
    lines: list[Content] = []
    for section in sections:
        if lines and gaps:
            lines.append(Content())
        beside = section.beside.rjust(width - len(section.heading))
        lines.append(Content.assemble((section.heading, "bold $primary"), (beside, "$muted")))
        left = [id(row) in gone for row in section.rows]
        for row, out, cut in zip(section.rows, left, [*left, False][1:], strict=True):
            if not out:
                lines.append(row.cut if cut and row.cut is not None else row.text)
    return lines


def pair(label: str, value: str, width: int, rank: int = 0) -> Row:
    """A label on the left and a value on the right of one line."""
    gap = max(1, width - Content(label).cell_length - Content(value).cell_length)
    return Row(Content.assemble((label, "$muted"), " " * gap, value), rank)


def parts(named: Sequence[tuple[str | Content, str]], width: int, rank: int = 0) -> list[Row]:
    """Several short values on one line, or on more where they do not fit: `trunk 2.0G  KV 3.0G`."""
    pieces = [Content.assemble(_muted(name), " ", value) for name, value in named]
    return [Row(line, rank) for line in flow(pieces, "  ", width)]


def _muted(name: str | Content) -> Content:
    return Content.styled(name, "$muted") if isinstance(name, str) else name


def swatch(mark: str, name: str, used: int | None, total: int | None) -> Content:
    """The name of a piece of a `split_meter` of these bytes, behind the piece's mark as it is there."""
    return Content.assemble((mark, _ink(ratio(used, total))), (name, "$muted"))


def _ink(share: float | None) -> str:
    """Of the filled cells of a meter."""
    return "$warning" if share is not None and share >= _FULL else "$primary"


def split_meter(pieces: Sequence[tuple[str, int | None]], used: int | None, total: int | None, width: int) -> Row:
    """A bar with its percentage, of which each piece (its mark, its bytes) has cells of its own kind; the rest of
    what is used is drawn as any meter's empty cells are, and what is free as dots.
    """
    if used is None or not total:
        return meter(None, width)
    text = f.percent(used / total, 0).rjust(6)
    room = max(4, width - len(text))
    drawn, sum_ = "", 0
    for mark, size in (*pieces, (OTHERS, max(0, used - sum(size or 0 for _, size in pieces)))):
        sum_ += size or 0
        drawn += mark * max(0, min(room, round(sum_ / total * room)) - len(drawn))  # rounded so that they add up
    return Row(Content.assemble((drawn, _ink(used / total)), (_FREE * (room - len(drawn)), "$muted"), text))


def meter(ratio: float | None, width: int, rank: int = 0) -> Row:
    """A bar with its percentage."""
    text = f.percent(ratio, 0).rjust(6)
    return Row(Content.assemble((f.bar(ratio, max(4, width - len(text))), _ink(ratio)), text), rank)


def note(text: str, width: int) -> list[Content]:
    """A sentence on lines of its own, set in."""
    wrapped = Content(clean_line(text)).wrap(max(1, width - 2)) if text else []
    return [Content.assemble("  ", line.stylize("$muted")) for line in wrapped]


def note_rows(text: str, width: int, first: int, rest: int) -> list[Row]:
    """The same as rows, with the first line's rank and that of the others. Alone, the first ends with a whole word."""
    lines = note(text, width)
    begin = note(text, width - 1)[:1]  # as long as leaves a cell for the sign that there is more
    cut = Content.styled(f"{begin[0].plain.rstrip(' ,;:(')}…", "$muted") if begin else None
    return [Row(line, rest if number else first, cut) for number, line in enumerate(lines)]


def trend(label: str, values: deque[float | None], top: float | None, value: str, width: int, rank: int = 0) -> Row:
    """The last values as a line of blocks, and the last one as a number."""
    first, last = 9, max(9, len(value) + 1)
    room = width - first - last
    line = f.spark(values, room, top) if values else " " * room
    return Row(Content.assemble((f"{label:{first}}", "$muted"), (line, "$primary"), f"{value:>{last}}"), rank)


def columns(width: int) -> tuple[int, int]:
    """Cells of a table's labels, and of each of its two columns of numbers."""
    last = max(8, (width - 14) // 2)
    return max(11, width - 2 * last), last


def table_row(label: str, values: tuple[str, str], width: int, rank: int = 0) -> Row:
    """A label and two numbers, of the reply and in total."""
    first, last = columns(width)
    return Row(Content.assemble((f"{label:{first}}", "$muted"), *(f"{value:>{last}}" for value in values)), rank)


def ratio(part: int | None, whole: int | None) -> float | None:
    """A part's share, None where one is unknown."""
    return part / whole if part is not None and whole else None


def flow(pieces: Iterable[Content], gap: str, width: int) -> list[Content]:
    """Pieces that are not to be broken, as many in a line as there is room for."""
    lines: list[Content] = []
    for piece in pieces:
        if lines and lines[-1].cell_length + len(gap) + piece.cell_length <= width:
            lines[-1] = Content.assemble(lines[-1], gap, piece)
        else:
            lines.append(piece)
    return lines
