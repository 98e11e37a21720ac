"""The chat's messages: the newest ones are mounted, older ones are loaded when scrolled to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from ..actions import Where, bindings
from ..chat import Turn
from .message_view import MessageView

WINDOW = 30  # messages mounted when a chat is opened
BATCH = 10  # older ones mounted at a time
_MOST = 60  # more than this are cut back to WINDOW while the end is followed
MAX_WIDTH = 104  # of the text, in cells
_FOUND_SECONDS = 3.0  # how long a message that was gone to is marked


class Transcript(VerticalScroll):
    """Follows the end only while the end is shown; else it counts the lines that came."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.TRANSCRIPT)]

    class Unseen(Message):
        """So many lines have come below what is shown; 0: the end is shown."""

        def __init__(self, lines: int) -> None:
            super().__init__()
            self.lines = lines

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._turns: Sequence[Turn] = ()
        self._first = 0  # index of the first mounted turn
        self._views: list[MessageView] = []
        self._changing = asyncio.Lock()  # one change of what is mounted at a time
        self._seen = 0  # height of the text when its end was last shown
        self._unseen = 0
        self._width = 0
        self._reflow: Timer | None = None

    def compose(self) -> ComposeResult:
        with Vertical(id="messages"):
            yield Static(id="earlier")
            yield Static(id="welcome")

    def on_mount(self) -> None:
        self.anchor()
        self.watch(self, "scroll_y", self._scrolled, init=False)

    @property
    def _messages(self) -> Vertical:
        return self.query_one("#messages", Vertical)

    # What is shown

    async def show(self, turns: Sequence[Turn]) -> None:
        """Shows a chat from its end; `turns` is kept and may grow (see `add`)."""
        async with self._changing:
            self._turns = turns
            self._first = max(0, len(turns) - WINDOW)
            self._width = self.text_width
            old, self._views = self._views, [MessageView(t, self._width) for t in turns[self._first :]]
            with self.app.batch_update():
                await self._messages.remove_children(old)
                await self._messages.mount_all(self._views)
                self._mark_earlier()
            if turns:
                self.follow()
            else:  # the welcome text is read from its start
                self.anchor(False)
                self.scroll_home(animate=False)

    async def add(self, turn: Turn) -> None:
        """Shows a turn that was just added to the turns, and goes to the end."""
        async with self._changing:
            view = MessageView(turn, self._width or self.text_width)
            self._views.append(view)
            if len(self._views) > _MOST:
                cut, self._views = self._views[:-WINDOW], self._views[-WINDOW:]
                self._first += len(cut)
                await self._messages.remove_children(cut)
            await self._messages.mount(view)
            self._mark_earlier()
            self.follow()

    async def reveal(self, turn: Turn) -> None:
        """Shows a turn of the chat at the top, marked for a moment; mounts what is between it and the end first."""
        self.anchor(False)
        async with self._changing:
            index = next(n for n, t in enumerate(self._turns) if t is turn)
            while self._first > index:  # in parts, so that the screen stays alive
                start = max(index, self._first - 2 * BATCH)
                views = [MessageView(t, self._width) for t in self._turns[start : self._first]]
                self._first = start
                self._views[:0] = views
                await self._messages.mount_all(views, after=self.query_one("#welcome"))
            self._mark_earlier()
        view = self.view_of(turn)
        assert view is not None

        def go() -> None:
            self.scroll_to_widget(view, animate=False, top=True, immediate=True)
            view.add_class("-found")
            self.set_timer(_FOUND_SECONDS, lambda: view.remove_class("-found"))

        self.call_after_refresh(go)

    def view_of(self, turn: Turn) -> MessageView | None:
        """The mounted view of a turn; newest first, because that is what is asked for."""
        return next((v for v in reversed(self._views) if v.turn is turn), None)

    def welcome(self, text: Content) -> None:
        """What stands in an empty chat."""
        self.query_one("#welcome", Static).update(text)

    def fold_thinking(self) -> None:
        """Folds all thinking if any is unfolded, else unfolds all."""
        self.before_growth()
        fold = any(view.unfolded for view in self._views)
        for view in self._views:
            view.fold(fold)

    # Following

    def follow(self) -> None:
        """To the end, and stay there."""
        self.anchor()
        self.settle()

    def before_growth(self) -> None:
        """Call before text is added: keeps the end in view if it is in view now."""
        if self.is_vertical_scroll_end:
            self.anchor()

    def settle(self) -> None:
        """Call after changes and from a timer: tells how many lines came below what is shown."""
        height = self.virtual_size.height
        if self.is_vertical_scroll_end:
            self._seen = height
        unseen = max(0, height - self._seen) if self._turns else 0
        if unseen != self._unseen:
            self._unseen = unseen
            self.post_message(self.Unseen(unseen))

    def _scrolled(self) -> None:
        if self.scroll_y <= 0 and self._first > 0 and not self._changing.locked() and self.max_scroll_y > 0:
            self.run_worker(self._load_older(), group="older")

    async def _load_older(self) -> None:
        async with self._changing:
            if self._first == 0:
                return
            start = max(0, self._first - BATCH)
            views = [MessageView(t, self._width) for t in self._turns[start : self._first]]
            self._first = start
            self._views[:0] = views
            height, place = self.virtual_size.height, self.scroll_y
            await self._messages.mount_all(views, after=self.query_one("#welcome"))
            self._mark_earlier()

        def stay() -> None:
            added = self.virtual_size.height - height
            self._seen += added
            self.scroll_to(y=place + added, animate=False, immediate=True)

        self.call_after_refresh(stay)

    def _mark_earlier(self) -> None:
        earlier = self.query_one("#earlier", Static)
        earlier.display = self._first > 0
        earlier.update(Content(f"▲ {self._first} earlier messages"))
        self.query_one("#welcome").display = not self._turns

    # Width

    @property
    def text_width(self) -> int:
        """Cells for a message's text."""
        return max(20, min(MAX_WIDTH, self.scrollable_content_region.width) - 2)

    def on_resize(self) -> None:
        if self._reflow is not None:
            self._reflow.stop()
        self._reflow = self.set_timer(0.1, self._new_width)

    def _new_width(self) -> None:
        if self.text_width != self._width:
            self._width = self.text_width
            for view in self._views:
                view.lay_out(self._width)
