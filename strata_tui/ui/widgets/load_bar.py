"""A model's load: stage, how much of it is done, and how to stop it."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from ...engine.events import LoadProgress
from ...text import clean_line
from .. import format as f

_METER, _LEAST_METER, _LEAST_LABEL = 40, 12, 16  # cells: of a meter at most, and what labels leave for it; of a label


class LoadBar(Static):
    """Shown only while a model loads, or is fetched; `stops` says how that is stopped."""

    def __init__(self, id: str | None = None, stops: str = "esc stops") -> None:
        super().__init__(id=id)
        self._stops = stops
        self._progress: LoadProgress | None = None
        self.display = False

    def show(self, progress: LoadProgress) -> None:
        """Takes new progress."""
        self._progress = progress
        self.display = True
        self._draw_all()

    def hide(self) -> None:
        """The load has ended."""
        self._progress = None
        self.display = False
        self._draw_all()

    def on_resize(self) -> None:
        self._draw_all()

    def _draw_all(self) -> None:
        """Draws those that are shown, with their columns under one another."""
        loads = {bar: (bar._progress, bar._stops) for bar in self.screen.query(LoadBar) if bar._progress is not None}
        for bar, line in zip(loads, load_lines(list(loads.values()), self.screen.size.width), strict=True):
            bar.update(line)


def load_text(progress: LoadProgress, width: int, stops: str = "esc stops") -> Content:
    """One line: stage, bar, bytes or items, and the key that stops it. A total of 0 is unknown."""
    return load_lines([(progress, stops)], width)[0]


def load_lines(loads: Sequence[tuple[LoadProgress, str]], width: int) -> list[Content]:
    """The same of several: their bars begin and end in the same columns."""
    labels = [Content(f" {clean_line(progress.stage)}") for progress, _ in loads]
    figures = [_figures(progress, stops) for progress, stops in loads]
    room = width - max(map(len, figures), default=0)
    label = max((text.cell_length for text in labels), default=0)
    label = max(1, min(label, room - 1, max(_LEAST_LABEL, room - 1 - _LEAST_METER)))
    meter = min(_METER, room - 1 - label)
    lines = []
    for (progress, _), text, right in zip(loads, labels, figures, strict=True):
        ratio = progress.done / progress.total if progress.total > 0 else None
        cells = meter if meter >= 6 else 0
        drawn = " " * cells if ratio is None and len(loads) > 1 else f.bar(ratio, cells) if ratio is not None else ""
        lines.append(Content.assemble(text.truncate(label, ellipsis=True, pad=True), " ", (drawn, "$primary"), right))
    return lines


def _figures(progress: LoadProgress, stops: str) -> str:
    """What stands behind the bar."""
    if progress.total <= 0:
        return f" {f.size(progress.done) if progress.done else '…'}  {stops} "
    if progress.unit == "bytes":
        part = f.size_of(progress.done, progress.total)
    else:
        part = f"{f.count(progress.done)} / {f.count(progress.total)} {progress.unit}"
    return f" {part}  {f.percent(progress.done / progress.total, 0)}  {stops} "
