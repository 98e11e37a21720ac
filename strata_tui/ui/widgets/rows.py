"""The lists of the pages: one look of the chosen row, whoever has the keys."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import OptionList

_CURSOR = "option-list--option-highlighted"


class CursorInk(OptionList):
    """Its chosen row is drawn in the cursor's own ink alone: other inks would be lost on the cursor's ground.

    In the terminal's own colours, and without any, the row is reversed, which the list itself does not do.
    """

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        if self.highlighted is None:  # as the rows under the last option, which belong to none
            return strip
        if not any(s.style is not None and s.style.meta.get("option") == self.highlighted for s in strip):
            return strip
        cursor = self.get_component_rich_style(_CURSOR)
        ink = Style(color=cursor.color, bgcolor=cursor.bgcolor, reverse=cursor.reverse, dim=False)
        return Strip(Segment.apply_style(strip, post_style=ink), strip.cell_length)


class Rows(CursorInk):
    """A list of rows, each an option."""

    def __init__(self, *options: object, id: str | None = None) -> None:
        super().__init__(*options, id=id, compact=True)  # type: ignore[arg-type]


def cursor_style(widget: Widget) -> str:
    """The same look for a chosen part of a text that is no list."""
    if widget.app.native_ansi_color:
        return "bold reverse"
    return "bold $block-cursor-foreground on $block-cursor-background"
