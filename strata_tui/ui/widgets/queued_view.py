"""What waits to be sent, above the prompt."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from ...text import clean_line

MOST_LINES = 3


class QueuedView(Static):
    """Hidden while nothing waits."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._texts: Sequence[str] = ()
        self.display = False

    def show(self, texts: Sequence[str]) -> None:
        """Takes the texts of the messages that wait, in their order."""
        self._texts = texts
        self.display = bool(texts)
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        if self._texts:
            self.update(queued_text(self._texts, self.size.width or self.app.size.width))


def queued_text(texts: Sequence[str], width: int) -> Content:
    """A line a message: the first ones, and in the last line how to take the last one back."""
    hint = "esc takes it back" if len(texts) == 1 else f"{len(texts)} wait, esc takes the last back"
    shown = [clean_line(text) for text in texts[:MOST_LINES]]
    lines = []
    for number, text in enumerate(shown):
        last = number == len(shown) - 1
        room = max(1, width - 10 - (len(hint) + 2 if last else 0))
        line = Content.assemble((" queued: ", "$accent"), Content(text).truncate(room, ellipsis=True))
        if last:
            line = Content.assemble(line, " " * max(2, width - line.cell_length - len(hint) - 1), (hint, "$secondary"))
        lines.append(line)
    return Content("\n").join(lines)
