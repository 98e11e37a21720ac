"""The line above the prompt: numbers and what the engine does."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from ...engine.events import Snapshot
from ..status_text import Activity, status_text


class StatusLine(Static):
    """Draws `status_text` for its own width."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._last = (Snapshot(), Activity(), True)
        self._drawn: Content | None = None

    def show(self, snapshot: Snapshot, activity: Activity, folded: bool) -> None:
        """Takes new numbers; `folded`: the engine panel is not beside the chat."""
        self._last = (snapshot, activity, folded)
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        snapshot, activity, folded = self._last
        text = status_text(snapshot, activity, self.size.width, folded)
        if self._drawn is None or not text.is_same(self._drawn):
            self._drawn = text
            self.update(text, layout=False)
