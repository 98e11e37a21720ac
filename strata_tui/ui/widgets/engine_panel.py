"""The engine's live numbers, beside the chat or over it."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ...engine.events import Snapshot
from ..history import RateHistory
from ..keymap import DEFAULT, Keymap
from ..panel_parts import join_columns, join_sections
from ..panel_text import panel_sections

_LEAST = 24  # cells; below this the panel is being opened or closed
_COLUMN = 27  # cells of each of two columns, at least
_ROOMY = 70  # cells from which the columns stand apart


class EnginePanel(VerticalScroll):
    """One Static in a scroll: the whole panel is text, so a refresh is one update."""

    def __init__(self, id: str | None = None, keymap: Keymap = DEFAULT) -> None:
        super().__init__(id=id, classes="section")
        self._keymap = keymap
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

    def on_focus(self) -> None:
        self.draw()  # all of it: it can be scrolled now

    def on_blur(self) -> None:
        self.scroll_home(animate=False)
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        """Draws the last numbers for the present size."""
        width, height = self.scrollable_content_region.size
        if width >= _LEAST:
            gap = 2 if width < _ROOMY else 3  # a blank before the line between them, at least
            column = (width - gap) // 2
            two = column >= _COLUMN
            sections = panel_sections(self._snapshot, self.history, column if two else width, self._keymap)
            if two:
                text = join_columns(sections, column, height, gap, whole=self.has_focus)
            else:
                text = join_sections(sections, width, height, whole=self.has_focus)
            if self._drawn is None or not text.is_same(self._drawn):  # else nothing has to be laid out anew
                shown = self.query_one("#engine-text", Static)
                high = 0 if self._drawn is None else self._drawn.get_height({}, width)
                shown.update(text, layout=text.get_height({}, width) != high or shown.size.width != width)
                self._drawn = text
