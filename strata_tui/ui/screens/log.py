"""The engine's log, as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ...errors import UserError
from ..actions import Where, bindings
from ..log_file import LEVELS, LogLine, at_least, read_log
from .action_screen import ActionScreen, sentence

_SHOWN = 1000  # lines
_AGAIN_SECONDS = 1.0
_STYLES = {"WARNING": "$warning", "ERROR": "$error", "DEBUG": "$secondary"}


def _styled(line: LogLine) -> Content:
    """A line whose time and level step back, unless the level is a warning or an error."""
    style = _STYLES.get(line.level, "")
    head = len(line.shown) - len(line.text)
    return Content.assemble((line.shown[:head], style or "$secondary"), (line.text, style))


class LogScreen(ActionScreen[None]):
    """Follows the end while it is shown. `copy` takes the text to copy, what it is, and what tells of it."""

    CSS_PATH = "log.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.PAGES), *bindings(Where.LOG)]

    def __init__(self, path: Path | None, copy: Callable[[str, str, Callable[[str], None]], None]) -> None:
        super().__init__()
        self._path = path
        self._copy = copy
        self._level = "INFO"
        self._lines: list[LogLine] = []
        self._shown: list[LogLine] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="section page", id="log"):
            with VerticalScroll(id="log-page"):
                yield Static(id="log-text")
            yield Static(id="log-news")

    async def on_mount(self) -> None:
        self.query_one("#log-page").anchor()
        self.query_one("#log-page").focus()
        self.set_interval(_AGAIN_SECONDS, self._read)
        await self._read()

    # Actions

    def do_page_close(self) -> None:
        """Closes."""
        self.dismiss(None)

    async def do_log_level(self) -> None:
        """The next level: from there on lines are shown."""
        self._level = LEVELS[(LEVELS.index(self._level) + 1) % len(LEVELS)]
        self._shown = []
        self._fill()

    def do_log_copy(self) -> None:
        """Copies what is shown, or what is selected."""
        selected = self.get_selected_text()
        if selected:
            self._copy(selected, "The selection", self.tell)
        else:
            self._copy("\n".join(line.shown for line in self._shown), f"{len(self._shown)} lines", self.tell)

    def do_log_up(self) -> None:
        """A line up."""
        self.query_one("#log-page").scroll_up(animate=False)

    def do_log_down(self) -> None:
        """A line down."""
        self.query_one("#log-page").scroll_down(animate=False)

    def do_log_page_up(self) -> None:
        """A page up."""
        self.query_one("#log-page").scroll_page_up(animate=False)

    def do_log_page_down(self) -> None:
        """A page down."""
        self.query_one("#log-page").scroll_page_down(animate=False)

    def do_log_end(self) -> None:
        """To the end, and follow it."""
        self.query_one("#log-page").anchor()

    # Inside

    async def _read(self) -> None:
        if self.gone:
            return
        if self._path is None:
            self.tell("The engine keeps no log here.")
            return
        try:
            self._lines = await asyncio.to_thread(read_log, self._path)
        except UserError as error:
            if not self.gone:
                self.tell(str(error), error=True)
        else:
            if not self.gone:
                self._fill()

    def _fill(self) -> None:
        box = self.query_one("#log")
        box.border_title = f"Engine log, from {self._level} on"
        box.border_subtitle = "f12 level, y copies, end follows, esc closes"
        lines = at_least(self._lines, self._level)[-_SHOWN:]
        if lines == self._shown and lines:
            return
        self._shown = lines
        text = Content("\n").join([_styled(line) for line in lines])
        self.query_one("#log-text", Static).update(text if lines else Content.styled("no such lines", "$secondary"))

    def tell(self, text: str, error: bool = False) -> None:
        news = self.query_one("#log-news", Static)
        news.display = bool(text)
        news.update(sentence(text, error, "$secondary"))
