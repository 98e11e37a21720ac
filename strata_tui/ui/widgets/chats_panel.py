"""The list of chats, by day, with a filter; beside the chat on wide screens, over it on others."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option, OptionDoesNotExist

from ...errors import UserError
from ...sessions.rows import SessionInfo
from ...sessions.search import Term, match_title, terms_of
from ...sessions.titles import title_from
from ...text import clean_line
from ..actions import Where, bindings
from .rows import Rows

_DATES_FROM = 60  # width in cells from which a chat's date and length are shown


class ChatList(Rows):
    """The list, with this app's keys."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.CHATS)]


class ChatFilter(Input):
    """A line above the list; enter and down go to the list, escape empties it first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,down", "to_list", "list", key_display="enter"),
        Binding("escape", "give_up", "clear", key_display="esc"),
    ]

    class Left(Message):
        """The list is to have the keys again."""

    def action_to_list(self) -> None:
        """Keeps the filter."""
        self.post_message(self.Left())

    def action_give_up(self) -> None:
        """Shows all chats again."""
        self.value = ""
        self.post_message(self.Left())


class ChatsPanel(Vertical):
    """Shows chats; what is done to them is the screen's business."""

    class Chosen(Message):
        """A chat was clicked."""

        def __init__(self, session: int) -> None:
            super().__init__()
            self.session = session

    class Left(Message):
        """The focus has gone elsewhere while the panel was over the chat."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id, classes="section")
        self._sessions: dict[int, SessionInfo] = {}
        self._width = 0
        self._shown: int | None = None
        self._busy: int | None = None
        self._entered = False  # it had the focus while it was over the chat

    def compose(self) -> ComposeResult:
        yield ChatFilter(id="chat-filter", placeholder="f: filter by title", compact=True)
        yield ChatList(id="chat-list")

    def on_mount(self) -> None:
        self.border_title = "Chats"

    def show(self, sessions: Sequence[SessionInfo], shown: int | None, running: int | None) -> None:
        """Fills the list; the highlighted chat stays highlighted where it still exists."""
        self._sessions = {s.id: s for s in sessions}
        self._shown, self._busy = shown, running
        self._fill()

    def on_resize(self) -> None:
        room = self.query_one(ChatList).scrollable_content_region.width
        if room != self._width:
            self._width = room
            self._fill()

    def on_descendant_focus(self) -> None:
        self._entered = self.has_class("-over")
        chats = self.query_one(ChatList)
        if chats.highlighted is None:
            chats.action_first()

    def on_descendant_blur(self) -> None:
        self.call_after_refresh(self._check_focus)

    def _check_focus(self) -> None:
        if self.has_focus_within or self.screen.focused is None:
            return
        self._highlight(self._shown)
        # The blur may be one from before the panel was opened, handled late: it has not been left by that.
        if self._entered and self.has_class("-over"):
            self.post_message(self.Left())
        self._entered = False

    @on(ChatFilter.Changed)
    def _filtered(self, event: ChatFilter.Changed) -> None:
        event.stop()
        self._fill()

    @on(ChatFilter.Left)
    def focus_list(self) -> None:
        """Gives the list the keys."""
        self.query_one(ChatList).focus()

    def show_all(self) -> None:
        """Empties the filter: what it hid is there when the list is opened again."""
        self.query_one(ChatFilter).value = ""

    def focus_filter(self) -> None:
        """Gives the filter the keys."""
        self.query_one(ChatFilter).focus()

    def move(self, step: int) -> None:
        """Highlights the chat above (-1) or below (1)."""
        chats = self.query_one(ChatList)
        if step < 0:
            chats.action_cursor_up()
        else:
            chats.action_cursor_down()

    def _fill(self) -> None:
        chats = self.query_one(ChatList)
        terms = self._terms()
        found = [s for s in self._sessions.values() if not terms or match_title(s.title, terms)]
        keys = [s.id for s in found]
        first = (self.highlighted, self._shown) if self.has_focus_within else (self._shown, self.highlighted)
        if not self.has_focus_within:  # a chat that is not listed yet: no other looks like the shown one then
            first, keys = (self._shown,), [key for key in keys if key == self._shown]
        wanted = next((key for key in (*first, *keys) if key in keys), None)
        chats.clear_options()
        chats.add_options(self._options(found, terms))
        if not found:
            nothing = "no title has these words" if self._sessions else "no chats yet"
            chats.add_option(Option(Content.styled(nothing, "$muted"), disabled=True))
        number = len(self._sessions)
        count = f"{number} chat{'' if number == 1 else 's'}"
        self.border_subtitle = f"{len(found)} of {count}" if terms else count
        self._highlight(wanted)

    def _highlight(self, session: int | None) -> None:
        """Highlights a chat, if it is in the list."""
        chats = self.query_one(ChatList)
        with contextlib.suppress(OptionDoesNotExist):
            chats.highlighted = chats.get_option_index(str(session))

    def _terms(self) -> list[Term]:
        try:
            return terms_of(self.query_one(ChatFilter).value)
        except UserError:  # too many words for any title
            return [Term(self.query_one(ChatFilter).value, whole=True)]

    def _options(self, sessions: Sequence[SessionInfo], terms: Sequence[Term]) -> Iterator[Option]:
        heading = ""
        now = time.time()
        for session in sessions:
            group = "Pinned" if session.pinned else group_of(session.updated, now)
            if group != heading:
                heading = group
                yield Option(Content.styled(group, "bold $primary"), disabled=True)
            yield Option(self._line(session, terms), id=str(session.id))

    def _line(self, session: SessionInfo, terms: Sequence[Term]) -> Content:
        mark = "■" if session.id == self._busy else "●" if session.id == self._shown else " "
        unnamed = f"draft: {title_from(session.draft)}" if session.draft else "untitled"
        title = clean_line(session.title) or unnamed
        pieces = match_title(session.title, terms) if terms else ((title, False),)
        line = Content.assemble(f"{mark} ", *((text, "bold underline") if hit else text for text, hit in pieces))
        if self._width < _DATES_FROM:
            return line
        count = f"{session.messages} message{'' if session.messages == 1 else 's'}"
        facts = f"  {count:>13}  {datetime.fromtimestamp(session.updated):%d %b %Y}"
        line = line.truncate(max(1, self._width - len(facts)), ellipsis=True, pad=True)
        return Content.assemble(line, facts)

    @property
    def highlighted(self) -> int | None:
        """The id of the highlighted chat."""
        option = self.query_one(ChatList).highlighted_option
        return int(option.id) if option is not None and option.id else None

    def session(self, session: int) -> SessionInfo | None:
        """A chat of the list."""
        return self._sessions.get(session)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option.id:
            self.post_message(self.Chosen(int(event.option.id)))


def group_of(then: float, now: float) -> str:
    """Today, Yesterday, or Older."""
    day, today = date.fromtimestamp(then), date.fromtimestamp(now)
    if day >= today:
        return "Today"
    return "Yesterday" if day == today - timedelta(days=1) else "Older"
