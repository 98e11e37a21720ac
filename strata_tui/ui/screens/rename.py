"""Asks for a chat's new title."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input


class RenameScreen(ModalScreen[str | None]):
    """One line of input; enter keeps it, escape leaves the title as it is (None)."""

    CSS_PATH = "rename.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Leave")]

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

    def action_leave(self) -> None:
        """Closes without a change."""
        self.dismiss(None)
