"""Asks what a chat is written as."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from ...sessions.export import Form, file_name
from ...sessions.rows import SessionInfo
from ..actions import Where, bindings
from ..export import Wish
from ..widgets.rows import Rows
from .action_screen import sentence
from .list_screen import ListScreen

_NAMES = {Form.MARKDOWN: "Markdown", Form.HTML: "HTML page", Form.JSON: "JSON, to read in again"}


class ExportScreen(ListScreen[Wish | None]):
    """One row a form, and with several branches two; the file goes into the current folder."""

    CSS_PATH = "export.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.PAGES), *bindings(Where.LISTS), *bindings(Where.EXPORT)]

    def __init__(self, session: SessionInfo, branches: int) -> None:
        super().__init__()
        self._session = session
        self._branches = branches
        self._thinking = False
        parts = (False, True) if branches > 1 else (False,)
        self._rows = [(form, whole) for form in Form for whole in parts]

    def compose(self) -> ComposeResult:
        with Vertical(classes="section page", id="export") as box:
            box.border_title = "Export this chat"
            box.border_subtitle = "enter writes, t thinking, esc closes"
            yield Rows(*(Option(self._row(form, whole)) for form, whole in self._rows), id="forms")
            yield Static(id="export-path")

    def _row(self, form: Form, whole: bool) -> Content:
        if self._branches < 2:
            return Content(_NAMES[form])
        part = f"all {self._branches} branches" if whole else "the shown branch"
        return Content.assemble(f"{_NAMES[form]:<24}", (part, "$secondary"))

    def on_mount(self) -> None:
        forms = self.query_one(OptionList)
        forms.highlighted = 0
        forms.focus()
        self._show()

    @on(OptionList.OptionHighlighted)
    def _show(self) -> None:
        form, _ = self._rows[self.query_one(OptionList).highlighted or 0]
        thinking = "with" if self._thinking or form is Form.JSON else "without"
        path = Path.cwd() / file_name(self._session, form.value)
        self.query_one("#export-path", Static).update(Content(f"{thinking} thinking, to {path}"))

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.do_export_write()

    def do_export_write(self) -> None:
        """Closes with the highlighted form."""
        form, whole = self._rows[self.query_one(OptionList).highlighted or 0]
        self.dismiss(Wish(form, whole, thinking=self._thinking))

    def do_export_thinking(self) -> None:
        """With the replies' thinking, or without it."""
        self._thinking = not self._thinking
        self._show()

    def tell(self, text: str, error: bool = False) -> None:
        self.query_one("#export-path", Static).update(sentence(text, error))
