"""Asks for a chat's new title."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input

from ..actions import Where, bindings
from .action_screen import ActionScreen


class RenameScreen(ActionScreen[str | None]):
    """One line of input; enter keeps it, escape leaves the title as it is (None)."""

    CSS_PATH = "rename.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.PAGES)]

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def compose(self) -> ComposeResult:
        with Vertical(classes="section page", id="rename") as box:
            box.border_title = "Rename chat"
            box.border_subtitle = "enter keeps, esc leaves"
            yield Input(self._title, placeholder="Title", compact=True)

    @on(Input.Submitted)
    def _keep(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)

    def do_page_close(self) -> None:
        """Closes without a change."""
        self.dismiss(None)

    def tell(self, text: str, error: bool = False) -> None:
        self.query_one("#rename").border_subtitle = Content(text)
