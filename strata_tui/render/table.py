"""Tables: columns aligned with box characters, cells wrapped where the table is wider than the screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rich.cells import cell_len
from textual.content import Content

from strata_tui.render import styles
from strata_tui.render.inline import render_inline
from strata_tui.render.layout import inner_width, prefixed, split_lines, wrap_lines
from strata_tui.render.parser import Node, nodes

Align = Literal["left", "center", "right"]

_BETWEEN: Final = " │ "
_CROSS: Final = "─┼─"
# Below this a column cannot hold a word: rows are then listed one field a line.
_MIN_COLUMN: Final = 4


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells; a cell is its lines. Every row has as many cells as there are columns; the first is the head."""

    aligns: tuple[Align, ...]
    rows: tuple[tuple[list[Content], ...], ...]


def render_table(node: Node, width: int | None) -> list[Content]:
    """Lines of the table, none wider than `width` cells (None: as wide as it wants)."""
    table = _read(node)
    natural = _natural_widths(table)
    widths = natural if width is None else _fit(natural, width - cell_len(_BETWEEN) * (len(natural) - 1))
    if widths is None:
        return _as_fields(table, width)
    cells = [
        [
            wrap_lines(cell, column if column < wish else None)
            for cell, column, wish in zip(row, widths, natural, strict=True)
        ]
        for row in table.rows
    ]
    # Rows of several lines are told apart by a line between them.
    ruled = any(len(cell) > 1 for row in cells[1:] for cell in row)
    rule = Content.styled(_CROSS.join("─" * column for column in widths), styles.TABLE_LINE)
    lines: list[Content] = []
    for index, row in enumerate(cells):
        if index == 1 or (ruled and index > 1):
            lines.append(rule)
        lines.extend(_row_lines(row, widths, table.aligns))
    if len(cells) == 1:
        lines.append(rule)
    return lines


def _read(node: Node) -> Table:
    aligns: list[Align] = []
    rows: list[tuple[list[Content], ...]] = []
    for section in nodes(node.inner):
        for row in nodes(section.inner):
            cells: list[list[Content]] = []
            for cell in nodes(row.inner):
                heading = cell.token.type == "th_open"
                if heading:
                    aligns.append(_align(str(cell.token.attrGet("style") or "")))
                content = render_inline(cell.inner[0].children or ()) if cell.inner else Content()
                lines = split_lines(content)
                cells.append([line.stylize_before(styles.TABLE_HEAD) for line in lines] if heading else lines)
            rows.append(tuple(cells))
    return Table(tuple(aligns), tuple(rows))


def _align(style: str) -> Align:
    for align in ("center", "right"):
        if style.endswith(align):
            return "center" if align == "center" else "right"
    return "left"


def _natural_widths(table: Table) -> list[int]:
    columns = zip(*table.rows, strict=True)
    return [max(1, *(line.cell_length for cell in column for line in cell)) for column in columns]


def _fit(natural: Sequence[int], room: int) -> list[int] | None:
    """Column widths that sum to at most `room`: the widest give way first. None where words no longer fit."""
    if sum(natural) <= room:
        return list(natural)
    limit, left = 0, room
    widths = [0] * len(natural)
    # Narrow columns keep what they need; the others share what is left.
    order = sorted(range(len(natural)), key=lambda column: natural[column])
    for place, column in enumerate(order):
        limit = left // (len(order) - place)
        widths[column] = min(natural[column], limit)
        left -= widths[column]
    if any(given < min(wish, _MIN_COLUMN) for given, wish in zip(widths, natural, strict=True)):
        return None
    return widths


def _row_lines(row: Sequence[list[Content]], widths: Sequence[int], aligns: Sequence[Align]) -> list[Content]:
    between = Content.styled(_BETWEEN, styles.TABLE_LINE)
    lines: list[Content] = []
    for index in range(max(len(cell) for cell in row)):
        pieces = [
            _pad(cell[index] if index < len(cell) else Content(), column, align)
            for cell, column, align in zip(row, widths, aligns, strict=True)
        ]
        lines.append(between.join(pieces).rstrip())
    return lines


def _pad(line: Content, width: int, align: Align) -> Content:
    line = line.rstrip()
    spare = max(0, width - line.cell_length)
    if align == "right":
        return line.pad_left(spare)
    if align == "center":
        return line.pad(spare // 2, spare - spare // 2)
    return line.pad_right(spare)


def _as_fields(table: Table, width: int | None) -> list[Content]:
    """For very narrow screens: each row as "head: value" lines, rows apart by a blank line."""
    head = [Content(" ").join(cell) for cell in table.rows[0]]
    lines: list[Content] = []
    for row in table.rows[1:] or table.rows[:1]:
        if lines:
            lines.append(Content())
        for name, cell in zip(head, row, strict=True):
            field = Content.assemble(name, ": ", Content(" ").join(cell))
            lines.extend(prefixed(wrap_lines([field], inner_width(width, 2)), Content(), Content("  ")))
    return lines
