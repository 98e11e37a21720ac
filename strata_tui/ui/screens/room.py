"""The ways to make room in the context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from ...errors import UserError
from ...room import Room
from ..actions import Where, bindings
from ..room_text import FORK, LARGER, LEAVE_OUT, Choice
from ..widgets.rows import Rows
from .action_screen import sentence
from .list_screen import ListScreen


class RoomScreen(ListScreen[Choice | None]):
    """Opens at once and is filled when the chat has been measured."""

    CSS_PATH = "room.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.PAGES), *bindings(Where.LISTS), *bindings(Where.ROOM)]

    def __init__(self) -> None:
        super().__init__()
        self.found: tuple[Room, int] | None = None  # what was measured, and the larger context
        self._choices: Sequence[Choice] = ()

    def compose(self) -> ComposeResult:
        with Vertical(classes="section page", id="room") as box:
            box.border_title = "Room in the context"
            box.border_subtitle = "enter or its number, esc leaves"
            yield Static("Measuring the chat …", id="room-situation")
            yield Rows(id="room-choices")
            yield Static(id="room-news")

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def fill(self, fits: bool, situation: str, choices: Sequence[Choice]) -> None:
        """Shows the ways; those that cannot be taken say why."""
        if self.gone:
            return
        self._choices = choices
        self.query_one("#room").border_title = "Room in the context" if fits else "The context is full"
        self.query_one("#room-situation", Static).update(Content(situation))
        rows = self.query_one(OptionList)
        rows.add_options(
            Option(_line(n, one), id=one.id, disabled=bool(one.problem)) for n, one in enumerate(choices, 1)
        )
        rows.highlighted = next((n for n, one in enumerate(choices) if not one.problem), None)

    # Actions

    def do_room_larger(self) -> None:
        """A larger context."""
        self._take(LARGER)

    def do_room_fork(self) -> None:
        """A new chat with what fits."""
        self._take(FORK)

    def do_room_leave(self) -> None:
        """Leave messages out."""
        self._take(LEAVE_OUT)

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._take(event.option_id or "")

    def _take(self, id: str) -> None:
        choice = next((one for one in self._choices if one.id == id), None)
        if choice is None:
            return  # still being measured
        if choice.problem:
            raise UserError(choice.problem)
        self.dismiss(choice)

    def tell(self, text: str, error: bool = False) -> None:
        if not self.gone:
            news = self.query_one("#room-news", Static)
            news.display = bool(text)
            news.update(sentence(text, error, "$secondary"))


def _line(number: int, choice: Choice) -> Content:
    """What cannot be chosen says so in words, too: without colours nothing else would."""
    about = f"not now: {choice.problem}" if choice.problem else choice.about
    style = "$muted" if choice.problem else ""
    return Content.assemble((f"{number}  {choice.head}", style or "bold"), "\n   ", (about, style or "$secondary"))
