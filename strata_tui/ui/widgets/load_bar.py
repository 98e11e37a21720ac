"""A model's load: stage, how much of it is done, and how to stop it."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from ...engine.events import LoadProgress
from ...text import clean_line
from .. import format as f


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
        self._draw()

    def hide(self) -> None:
        """The load has ended."""
        self._progress = None
        self.display = False

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        if self._progress is not None:
            self.update(load_text(self._progress, self.size.width, self._stops))


def load_text(progress: LoadProgress, width: int, stops: str = "esc stops") -> Content:
    """One line: stage, bar, bytes or items, and the key that stops it. A total of 0 is unknown."""
    left = f" {clean_line(progress.stage)} "
    if progress.total <= 0:
        return Content(left + ("  " + f.size(progress.done) if progress.done else " …") + f"  {stops} ")
    ratio = progress.done / progress.total
    if progress.unit == "bytes":
        part = f.size_of(progress.done, progress.total)
    else:
        part = f"{f.count(progress.done)} / {f.count(progress.total)} {progress.unit}"
    right = f" {part}  {f.percent(ratio, 0)}  {stops} "
    shown = Content(left).truncate(max(1, width - len(right)), ellipsis=True)
    room = width - shown.cell_length - len(right)
    meter = f.bar(ratio, min(40, room)) if room >= 6 else ""
    return Content.assemble(shown, (meter, "$primary"), right)
