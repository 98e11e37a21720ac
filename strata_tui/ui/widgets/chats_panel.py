"""The list of chats, by day; beside the chat on wide screens, over it on others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ...sessions.rows import SessionInfo
from ...text import clean_line
from ..actions import Where, bindings


class ChatList(OptionList):
    """An option list with this app's keys."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.CHATS)]


class ChatsPanel(Vertical):
    """Shows chats; what is done to them is the screen's business."""

    class Chosen(Message):
        """A chat was clicked."""

        def __init__(self, session: int) -> None:
            super().__init__()
            self.session = session

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id, classes="section")
        self._sessions: dict[int, SessionInfo] = {}

    def compose(self) -> ComposeResult:
        yield ChatList(id="chat-list", compact=True)

    def on_mount(self) -> None:
        self.border_title = "Chats"

    def show(self, sessions: Sequence[SessionInfo], shown: int | None, running: int | None) -> None:
        """Fills the list; the highlighted chat stays highlighted where it still exists."""
        chats = self.query_one(ChatList)
        wanted = self.highlighted if self.highlighted in {s.id for s in sessions} else shown
        self._sessions = {s.id: s for s in sessions}
        chats.clear_options()
        heading = ""
        now = time.time()
        for session in sessions:
            day = day_name(session.updated, now)
            if day != heading:
                heading = day
                chats.add_option(Option(Content.styled(day, "bold $primary"), disabled=True))
            chats.add_option(Option(_line(session, shown, running), id=str(session.id)))
        if not sessions:
            chats.add_option(Option(Content.styled("no chats yet", "dim"), disabled=True))
        self.border_subtitle = str(len(sessions))
        if sessions:
            chosen = wanted if wanted in self._sessions else sessions[0].id
            chats.highlighted = chats.get_option_index(str(chosen))

    @property
    def highlighted(self) -> int | None:
        """The id of the highlighted chat."""
        option = self.query_one(ChatList).highlighted_option
        return int(option.id) if option is not None and option.id else None

    def focus_list(self) -> None:
        """Gives the list the keys."""
        self.query_one(ChatList).focus()

    def session(self, session: int) -> SessionInfo | None:
        """A chat of the list."""
        return self._sessions.get(session)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option.id:
            self.post_message(self.Chosen(int(event.option.id)))


def day_name(then: float, now: float) -> str:
    """Today, Yesterday, or a date."""
    day, today = date.fromtimestamp(then), date.fromtimestamp(now)
    if day == today:
        return "Today"
    if day == today - timedelta(days=1):
        return "Yesterday"
    return datetime.fromtimestamp(then).strftime("%d %b %Y" if day.year != today.year else "%d %B")


def _line(session: SessionInfo, shown: int | None, running: int | None) -> Content:
    mark = "■" if session.id == running else "●" if session.id == shown else " "
    title = clean_line(session.title) or ("draft" if session.draft else "untitled")
    return Content(f"{mark} {title}")
