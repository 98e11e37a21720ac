"""A scrolling page of text over the chat: help, and the memory plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ..actions import Where, bindings
from .action_screen import ActionScreen


class TextScreen(ActionScreen[None]):
    """Shows one text; escape, or the key that opened it, closes it."""

    CSS_PATH = "text_screen.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.PAGES), *bindings(Where.TEXT)]

    def __init__(self, title: str, text: Callable[[int], Content]) -> None:
        """`text`: of a width in cells, for it is laid out anew where there is less room."""
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="section page", id="page") as page:
            page.border_title = Content(self._title)  # a name may look like markup
            page.border_subtitle = "esc closes"
            yield Static()

    def on_resize(self) -> None:
        self.draw_soon(self._draw)

    def _draw(self) -> None:
        page = self.query_one("#page")
        width = page.outer_size.width - page.gutter.width - 1  # a scroll bar may come
        self.query_one(Static).update(self._text(max(20, width)))

    @property
    def _page(self) -> VerticalScroll:
        return self.query_one("#page", VerticalScroll)

    def do_page_close(self) -> None:
        """Closes."""
        self.dismiss(None)

    do_text_close = do_page_close

    def do_text_up(self) -> None:
        """A line up."""
        self._page.scroll_relative(y=-1, animate=False)

    def do_text_down(self) -> None:
        """A line down."""
        self._page.scroll_relative(y=1, animate=False)

    def do_text_page_up(self) -> None:
        """A page up, less a line."""
        self._page.scroll_relative(y=-max(1, self._page.size.height - 1), animate=False)

    def do_text_page_down(self) -> None:
        """A page down, less a line."""
        self._page.scroll_relative(y=max(1, self._page.size.height - 1), animate=False)

    def do_text_top(self) -> None:
        """To the start."""
        self._page.scroll_home(animate=False)

    def do_text_end(self) -> None:
        """To the end."""
        self._page.scroll_end(animate=False)

    def tell(self, text: str, error: bool = False) -> None:
        self._page.border_subtitle = Content(text)
