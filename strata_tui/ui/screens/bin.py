"""The deleted chats: bring one back, or remove it for good before its time is over."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from ...errors import UserError
from ...sessions.bin import KEPT_DAYS, days_left
from ...sessions.rows import SessionInfo
from ...text import clean_line
from ..actions import Where, bindings
from ..widgets.rows import Rows
from .action_screen import sentence
from .list_screen import ListScreen

if TYPE_CHECKING:
    from ..chats import Chats


class BinScreen(ListScreen[None]):
    """Removing asks for the same key again."""

    CSS_PATH = "bin.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.PAGES), *bindings(Where.LISTS), *bindings(Where.BIN)]

    def __init__(self, chats: Chats) -> None:
        super().__init__()
        self._chats = chats
        self._armed = ""  # what the next key of the same kind does

    def compose(self) -> ComposeResult:
        with Vertical(classes="section page", id="bin") as box:
            box.border_title = "Deleted chats"
            box.border_subtitle = "enter brings back, d removes, e empties, esc closes"
            yield Rows(id="bin-list")
            yield Static(id="bin-news")

    async def on_mount(self) -> None:
        self.query_one(OptionList).focus()
        await self._told(self._fill())

    async def _fill(self) -> None:
        found = await self._chats.deleted()
        if self.gone:
            return
        chats = self.query_one(OptionList)
        place = chats.highlighted or 0
        chats.clear_options()
        now = time.time()
        chats.add_options(Option(_line(chat, now), id=str(chat.id)) for chat in found)
        if found:
            chats.highlighted = min(place, len(found) - 1)
        self.tell(f"Gone for good after {KEPT_DAYS} days." if found else "No deleted chats.")

    @on(OptionList.OptionSelected)
    async def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        await self.do_bin_restore()

    @on(OptionList.OptionHighlighted)
    def _moved(self) -> None:
        self._armed = ""

    async def do_bin_restore(self) -> None:
        """Brings the highlighted chat back and goes to it."""
        session = self._session()
        if session is not None:
            self.dismiss(None)
            await self._chats.restore(session)

    async def do_bin_remove(self) -> None:
        """Removes the highlighted chat for good."""
        session = self._session()
        if session is not None and self._asked(f"d{session}", "Press d again: this chat is gone for good then."):
            await self._told(self._remove(session))

    async def do_bin_empty(self) -> None:
        """Removes all of them for good."""
        count = self.query_one(OptionList).option_count
        if count and self._asked("e", f"Press e again: all {count} are gone for good then."):
            await self._told(self._remove(None))

    async def _remove(self, session: int | None) -> None:
        await self._chats.remove(session)
        await self._fill()

    async def _told(self, work: Awaitable[None]) -> None:
        try:
            await work
        except UserError as error:
            if not self.gone:
                self.tell(str(error), error=True)

    def _asked(self, what: str, question: str) -> bool:
        """Whether the key was pressed once before; else the question is shown."""
        if self._armed == what:
            self._armed = ""
            return True
        self._armed = what
        self.tell(question)
        return False

    def _session(self) -> int | None:
        option = self.query_one(OptionList).highlighted_option
        return int(option.id) if option is not None and option.id else None

    def do_bin_close(self) -> None:
        """Closes, by the key that opened it from the list of chats."""
        self.dismiss(None)

    def tell(self, text: str, error: bool = False) -> None:
        self.query_one("#bin-news", Static).update(sentence(text, error))


def _line(chat: SessionInfo, now: float) -> Content:
    days = days_left(chat.deleted_at or 0.0, now)
    title = clean_line(chat.title) or "untitled"
    left = f"{days:>3} {'day ' if days == 1 else 'days'} left  "
    return Content.assemble((left, "$secondary"), title, (f"  {chat.messages} messages", "$secondary"))
