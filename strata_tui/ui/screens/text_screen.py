"""A scrolling page of text over the chat: help, and the memory plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static


class TextScreen(ModalScreen[None]):
    """Shows one text; escape, or the key that opened it, closes it."""

    CSS_PATH = "text_screen.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q", "dismiss", "Close"),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
    ]

    def __init__(self, title: str, text: Callable[[int], Content]) -> None:
        """`text`: of a width in cells, for it is laid out anew where there is less room."""
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="section page", id="page") as page:
            page.border_title = self._title
            page.border_subtitle = "esc closes"
            yield Static()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        width = self.query_one("#page").scrollable_content_region.width
        self.query_one(Static).update(self._text(width))

    async def action_dismiss(self, result: None = None) -> None:
        self.dismiss(None)

    def action_scroll(self, lines: int) -> None:
        """Scrolls by lines."""
        self.query_one("#page").scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        """Scrolls by pages."""
        page = self.query_one("#page")
        page.scroll_relative(y=pages * max(1, page.size.height - 1), animate=False)
