"""What covers the screen while the terminal is too small; everything under it goes on."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from ...term.size import DRAW_SIZE

MIN_WIDTH, MIN_HEIGHT = DRAW_SIZE


class TooSmall(Static):
    """States the size that is needed and the size that is there."""

    def on_resize(self) -> None:
        self.update(Content(too_small_text(self.screen.size.width, self.screen.size.height)))


def too_small_text(width: int, height: int) -> str:
    """The message, short enough for very small screens."""
    lines = ("Terminal too small", f"needed {MIN_WIDTH} x {MIN_HEIGHT}", f"now {width} x {height}")
    return "\n".join((*lines, "A running reply goes on."))
