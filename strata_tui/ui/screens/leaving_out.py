"""Which messages of a chat the model does not get: chosen one by one until the rest fits."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from ...errors import UserError
from ...room import Measure, Room, toggled, tokens_without
from ...sessions.rows import Role
from ...text import clean_line
from .. import format as f
from ..actions import Where, bindings
from ..widgets.rows import Rows
from .action_screen import sentence
from .list_screen import ListScreen

_OUT, _SENT, _FIXED = "not sent", "sent", "needed"
_MARK = max(map(len, (_OUT, _SENT, _FIXED)))


class _List(Rows):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.LISTS), *bindings(Where.LEAVING_OUT)]


class LeavingOutScreen(ListScreen[frozenset[int] | None]):
    """Gives back the indices of the messages that are left out. The oldest that must go are chosen already."""

    CSS_PATH = "leaving_out.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.PAGES)]

    def __init__(self, room: Room, measure: Measure) -> None:
        super().__init__()
        self._room = room
        self._measure = measure
        self._out = room.chosen
        self._digits = max((len(f.count(n)) for n in room.texts), default=1)
        self._tokens: int | None = None  # of what is sent now; None while it is being measured
        self._confirmed = False  # while it was being measured

    def compose(self) -> ComposeResult:
        with Vertical(classes="section page", id="leaving-out") as box:
            box.border_title = "Leave messages out"
            box.border_subtitle = "space changes, enter confirms, esc leaves"
            yield Static("They stay in the chat. A reply is left out or sent with its message.", id="leaving-about")
            yield _List(id="leaving-list")
            yield Static(id="leaving-news")

    def on_mount(self) -> None:
        rows = self.query_one(_List)
        rows.focus()
        self._fill()
        rows.highlighted = 0
        self._count()

    def on_resize(self) -> None:
        self.draw_soon(self._fill)

    # Actions

    def do_leaving_change(self) -> None:
        """The highlighted message is left out, or sent again."""
        index = self.query_one(_List).highlighted
        if index is not None:
            self._change(index)

    def do_leaving_done(self) -> None:
        """Leaves out what is chosen, where the rest fits."""
        if self._tokens is None:
            self._confirmed = True
            return
        if self._tokens + 1 > self._room.context:
            raise UserError(f"{f.count(self._tokens + 1 - self._room.context)} tokens too many: leave out more.")
        self.dismiss(self._out)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._change(event.option_index)

    # Inside

    def _change(self, index: int) -> None:
        path = self._room.asked.path
        if index >= self._room.asked.fixed:
            self.tell("The reply that is to go on needs this one.", error=True)
            return
        self._out = toggled(path, self._out, index)
        self._fill()
        self._count()

    def _fill(self) -> None:
        rows = self.query_one(_List)
        chosen = rows.highlighted
        width = max(24, rows.scrollable_content_region.width)
        rows.clear_options()
        rows.add_options(Option(self._line(n, width)) for n in range(len(self._room.asked.path)))
        rows.highlighted = chosen

    def _line(self, index: int, width: int) -> Content:
        one, room = self._room.asked.path[index], self._room
        out = index in self._out
        mark = _OUT if out else _FIXED if index >= room.asked.fixed else _SENT
        who = "You  " if one.role is Role.USER else "Reply"
        tokens = f"{f.count(room.texts[index]):>{self._digits}} tok"
        head = f"{index + 1:>3}  {mark:<{_MARK}}  {who}  "
        text = Content(clean_line(one.text) or "(empty)").truncate(
            max(1, width - len(head) - len(tokens) - 2), ellipsis=True
        )
        gap = " " * max(1, width - len(head) - text.cell_length - len(tokens))
        style, aside = ("$muted", "$muted") if out else ("", "$secondary")
        return Content.assemble((head, aside), text.stylize(style), gap, (tokens, aside))

    def _count(self) -> None:
        self._tokens, self._confirmed = None, False
        self.tell("Measuring …")
        self.run_worker(self._counted(self._out), exclusive=True)

    async def _counted(self, out: frozenset[int]) -> None:
        try:
            tokens = await tokens_without(self._room.asked, out, self._measure)
        except UserError as error:
            if not self.gone:
                self.tell(str(error), error=True)
            return
        if self.gone:
            return
        self._tokens = tokens
        left = self._room.context - tokens
        text = f"{f.count(tokens)} of {f.count(self._room.context)} tokens"
        if left < 1:
            self.tell(f"{text}: {f.count(1 - left)} too many.", error=True)
        elif left < self._room.reply:
            self.tell(f"{text}; only {f.count(left)} left for a reply.", error=True)
        else:
            self.tell(f"{text}, {f.count(left)} left for a reply.")
        if self._confirmed:
            try:
                self.do_leaving_done()
            except UserError as error:
                self.tell(str(error), error=True)

    def tell(self, text: str, error: bool = False) -> None:
        self.query_one("#leaving-news", Static).update(sentence(text, error, "$secondary"))
