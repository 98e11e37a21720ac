"""The engine's live numbers, beside the chat or over it."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ...engine.events import Snapshot
from ..history import RateHistory
from ..panel_text import join_columns, join_sections, panel_sections

_LEAST = 24  # cells; below this the panel is being opened or closed
_COLUMN = 27  # cells of each of two columns, at least
_ROOMY = 70  # cells from which the columns stand apart


class EnginePanel(VerticalScroll):
    """One Static in a scroll: the whole panel is text, so a refresh is one update."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id, classes="section")
        self.history = RateHistory()
        self._snapshot = Snapshot()
        self._drawn: Content | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="engine-text")

    def on_mount(self) -> None:
        self.border_title = "Engine"

    def sample(self, snapshot: Snapshot) -> None:
        """Takes new numbers; draws only while shown."""
        self.history.add(snapshot)
        self._snapshot = snapshot
        if self.display:
            self.draw()

    def forget(self) -> None:
        """Another model: what was recorded of the old one is dropped."""
        self.history.clear()

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        """Draws the last numbers for the present size."""
        width, height = self.scrollable_content_region.size
        if width >= _LEAST:
            gap = 1 if width < _ROOMY else 3
            column = (width - gap) // 2
            if column >= _COLUMN:
                sections = panel_sections(self._snapshot, self.history, column)
                text = join_columns(sections, column, height, width)
            else:
                text = join_sections(panel_sections(self._snapshot, self.history, width), width, height)
            if self._drawn is None or not text.is_same(self._drawn):  # else nothing has to be laid out anew
                self._drawn = text
                self.query_one("#engine-text", Static).update(text)
