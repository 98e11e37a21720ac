"""Several lines of text, edited on a page of their own."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Button, Static, TextArea

from ...term.editor import edit
from ..actions import Where, bindings
from .action_screen import ActionScreen, sentence


class EditScreen(ActionScreen[str | None]):
    """Gives back the text that was kept, None when it was left as it was."""

    CSS_PATH = "edit_screen.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.PAGES), *bindings(Where.EDIT)]

    def __init__(self, title: str, text: str, note: str = "") -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._note = note

    def compose(self) -> ComposeResult:
        with Vertical(classes="section page", id="edit") as box:
            box.border_title = Content(self._title)
            box.border_subtitle = "^s keeps, esc leaves, ^g your editor"
            yield TextArea(self._text, id="edit-text", soft_wrap=True, tab_behavior="focus", compact=True)
            yield Static(Content(self._note), id="edit-note")
            yield Button("Keep", id="edit-keep", compact=True)

    def on_mount(self) -> None:
        area = self.query_one(TextArea)
        area.move_cursor(area.document.end)
        area.focus()
        self.query_one("#edit-note").display = bool(self._note)

    def on_button_pressed(self) -> None:
        self.do_edit_keep()

    def do_edit_keep(self) -> None:
        """Closes with the text."""
        self.dismiss(self.query_one(TextArea).text)

    def do_page_close(self) -> None:
        """Closes without a change."""
        self.dismiss(None)

    def do_edit_editor(self) -> None:
        """Goes on in the person's editor. Raises UserError."""
        area = self.query_one(TextArea)
        with self.app.suspend():
            text = edit(area.text)
        if text is not None:
            area.replace(text, (0, 0), area.document.end, maintain_selection_offset=False)

    def tell(self, text: str, error: bool = False) -> None:
        note = self.query_one("#edit-note", Static)
        note.display = bool(text)
        note.update(sentence(text, error))
