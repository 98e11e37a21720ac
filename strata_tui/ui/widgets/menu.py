"""The menu above the prompt: what may be completed. The prompt keeps the focus and passes its keys on."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widgets import Static

from ...text import clean_line
from ..completion import Choice
from .rows import cursor_style

ROWS, SHORT_ROWS = 8, 5  # shown at a time: on a screen of some height, on a short one
_SHORT_BELOW = 24


class Menu(Static):
    """Hidden while there is nothing to choose."""

    class Picked(Message):
        """A line was clicked; it is the chosen one now."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._choices: Sequence[Choice] = ()
        self._index = 0
        self._top = 0
        self.moved = False  # the person has chosen a line, and not just been offered the first
        self.display = False

    @property
    def open(self) -> bool:
        """Whether there is something to choose."""
        return bool(self._choices)

    @property
    def chosen(self) -> Choice:
        """The highlighted choice; only while it is open."""
        return self._choices[self._index]

    @property
    def choices(self) -> Sequence[Choice]:
        """All choices, also those that are scrolled out of sight."""
        return self._choices

    def show(self, choices: Sequence[Choice]) -> None:
        """Offers these; the same ones again keep the highlighted line."""
        if choices != self._choices:
            self._choices, self._index, self._top, self.moved = choices, 0, 0, False
        self.display = bool(choices)
        self._draw()

    def close(self) -> None:
        """Offers nothing."""
        self.show(())

    def move(self, by: int) -> None:
        """Moves the highlight, from the last line to the first and back."""
        self._index = (self._index + by) % len(self._choices)
        self.moved = True
        self._draw()

    def on_click(self, event: Click) -> None:
        place = self._top + event.y
        if event.y < self._rows and place < len(self._choices):
            self._index, self.moved = place, True
            self.post_message(self.Picked())

    def on_resize(self) -> None:
        self._draw()

    @property
    def _rows(self) -> int:
        return SHORT_ROWS if self.app.size.height < _SHORT_BELOW else ROWS

    def _draw(self) -> None:
        self._top = min(max(self._top, self._index - self._rows + 1), self._index)
        shown = self._choices[self._top : self._top + self._rows]
        width = max(10, self.content_size.width)
        column = min(max((_left(choice).cell_length for choice in shown), default=0), max(16, width - 24))
        lines = []
        for number, choice in enumerate(shown, self._top):
            text = _left(choice)
            gap = " " * max(2, column + 2 - text.cell_length)
            line = Content.assemble(text, gap, (choice.note, "$secondary")).truncate(width, ellipsis=True)
            if number == self._index:
                line = Content(line.plain).pad_right(width - line.cell_length).stylize(cursor_style(self))
            lines.append(line)
        hidden = len(self._choices) - len(shown)
        if hidden > 0:
            lines.append(Content.styled(f"{hidden} more: arrow keys", "$secondary"))
        self.update(Content("\n").join(lines))


def _left(choice: Choice) -> Content:
    """What stands on the left of a line."""
    text = clean_line(choice.text)
    return Content.assemble(text, (f" {choice.hint}", "$secondary")) if choice.hint else Content(text)
