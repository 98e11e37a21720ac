"""A window of a chat's messages is mounted, those before and after it when scrolled to; the end is followed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from ..chat import Turn
from .growing import Growing
from .message_view import MessageView

WINDOW = 30  # messages mounted when a chat is opened, or one far away is gone to
BATCH = 10  # more of them mounted at a time when they are scrolled to
_AT_ONCE = 6  # of the window: enough for a screen; the rest follows in steps, between which keys are read
_STEP_SECONDS = 0.02
_MOST = 60  # more than this are cut back to WINDOW while the end is followed
MAX_WIDTH = 105  # of a message, in cells
_QUIET = 8  # times that it settles until what was folded out has its place
_SIDES = 3  # of these, what is beside its text: the bar and the padding
_FOUND_SECONDS = 3.0  # how long a message that was gone to is marked


class Messages(Growing, Vertical):
    """Those that are mounted."""


class MessageWindow(Growing, VerticalScroll):
    """Follows the end only while the end is shown; else it counts the lines that came."""

    class Unseen(Message):
        """So many lines have come below what is shown, or so many messages there are not mounted. 0: it is the end."""

        def __init__(self, lines: int, messages: int = 0) -> None:
            super().__init__()
            self.lines = lines
            self.messages = messages

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._turns: Sequence[Turn] = ()
        self._first = 0  # index of the first mounted turn
        self._last = 0  # one past the last mounted turn's
        self._apart = False  # turns follow the last mounted one
        self._placing = False  # another window was mounted, and what is shown of it is not settled yet
        self._views: list[MessageView] = []
        self._changing = asyncio.Lock()  # one change of what is mounted at a time
        self._above = 0  # lines that were mounted above since the chat was shown
        self._seen = 0  # height of the text, without those, when its end was last shown
        self._settled = 0  # the height when it was looked at last
        self._quiet = 0  # so many more times what has grown is not new
        self._unseen = (0, 0)
        self._width = 0
        self._reflow: Timer | None = None

    def compose(self) -> ComposeResult:
        with Messages(id="messages"):
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
        """Shows a chat from its end; `turns` is kept, and `refresh_turns` tells that it has changed."""
        async with self._changing:
            self._turns = turns
            self._above = 0
            self._width = self.text_width
            await self._mount(max(0, len(turns) - _AT_ONCE), len(turns), 0)
            if turns:
                self.follow()
            else:  # the welcome text is read from its start
                self.anchor(False)
                self.scroll_home(animate=False)
        self.run_worker(self._fill(max(0, len(turns) - WINDOW)), group="fill", exclusive=True)

    async def _fill(self, first: int) -> None:
        """Mounts the rest of the window, above what is shown."""
        while self._first > first:
            await asyncio.sleep(_STEP_SECONDS)
            await self.load_older(min(_AT_ONCE, self._first - first))

    async def refresh_turns(self, *, follow: bool) -> None:
        """The turns have changed; views of those that stay are kept. `follow`: and goes to the end, else stays."""
        async with self._changing:
            first, end = self._first, len(self._turns)
            last = min(self._last, end) if self._apart else end
            shown = self._turns[first:last]
            same = 0
            while same < min(len(self._views), len(shown)) and self._views[same].turn is shown[same]:
                same += 1
            if not same or (follow and (self._apart or len(shown) > _MOST)):
                first, last = max(0, end - WINDOW), end
            if not follow:
                self.anchor(False)
            await self._mount(first, last, self._first + same)
            if follow:
                self.follow()

    async def _mount(self, first: int, last: int, same: int) -> None:
        """Mounts the turns from index `first` up to `last`; the views of those before index `same` stay."""
        above = max(0, first - self._first)
        kept = self._views[above : max(above, same - self._first)]
        gone = [view for view in self._views if view not in kept]
        if not kept:
            same = first
        fresh = [MessageView(turn, self._width) for turn in self._turns[same:last]]
        self._first, self._views = first, [*kept, *fresh]
        self._set_last(last)
        with self.app.batch_update():
            if gone:
                await self._messages.remove_children(gone)
            if fresh:
                await self._messages.mount_all(fresh)
            for view in kept:
                view.mark_head()
            self._mark_earlier()

    def _set_last(self, last: int) -> None:
        self._last, self._apart = last, last < len(self._turns)

    async def _go_to(self, index: int) -> None:
        """Mounts the window around a turn in the place of the one there is, and shows that turn at the top."""
        self.workers.cancel_group(self, "fill")
        async with self._changing:
            self.anchor(False)
            self._placing = True
            first = max(0, min(index - BATCH // 2, len(self._turns) - WINDOW))
            await self._mount(first, min(len(self._turns), first + WINDOW), first)
            view = self._views[index - first]

        def place() -> None:
            if view.is_attached:  # else another window was mounted since
                self.scroll_to_widget(view, animate=False, top=True, immediate=True)
            self._placing = False

        self.call_after_refresh(place)
        self._see_all_later()

    def _see_all_later(self) -> None:
        """Once what was mounted has its place: nothing of it counts as having come below what is shown."""

        def see() -> None:
            self._seen = self.virtual_size.height - self._above

        self.call_after_refresh(see)

    async def go_to_end(self) -> None:
        """To the end, and stay there; mounts it where it is not."""
        if self._apart:
            await self._go_to(len(self._turns) - 1)
        self.follow()

    async def load_later(self) -> None:
        """Mounts some of the messages after the last mounted one."""
        async with self._changing:
            if not self._apart:
                return
            views = [MessageView(t, self._width) for t in self._turns[self._last : self._last + BATCH]]
            self._views += views
            self._set_last(self._last + len(views))
            await self._messages.mount_all(views)
        self._see_all_later()

    async def load_older(self, count: int = BATCH) -> None:
        """Mounts some of the messages before the first mounted one; what is shown stays in its place."""
        async with self._changing:
            if self._first == 0:
                return
            self.before_growth()
            at_end = self._at_end
            start = max(0, self._first - count)
            views = [MessageView(t, self._width) for t in self._turns[start : self._first]]
            self._first = start
            self._views[:0] = views
            height, place = self.virtual_size.height, self.scroll_y
            await self._messages.mount_all(views, after=self.query_one("#welcome"))
            self._mark_earlier()

        def stay() -> None:
            added = self.virtual_size.height - height
            self._above += added
            if at_end:  # it is followed
                return
            self.scroll_to(y=place + added, animate=False, immediate=True)

        self.call_after_refresh(stay)

    async def reveal(self, turn: Turn) -> None:
        """Shows a turn of the chat at the top, marked for a moment; mounts it, and those around it, where it is not."""
        self.anchor(False)
        index = next(n for n, t in enumerate(self._turns) if t is turn)
        if not self._first - BATCH <= index < self._last:
            await self._go_to(index)
        elif index < self._first:
            await self.load_older(self._first - index)
        view = self.view_of(turn)
        assert view is not None

        def go() -> None:
            self.release_anchor()
            self.scroll_to_widget(view, animate=False, top=True, immediate=True)
            view.add_class("-found")
            self.set_timer(_FOUND_SECONDS, lambda: view.remove_class("-found"))

        self.call_after_refresh(go)

    def _scrolled(self) -> None:
        if self._placing:
            return
        if self.scroll_y <= 0 and self._first > 0 and not self._changing.locked() and self.max_scroll_y > 0:
            self.run_worker(self.load_older(), group="older")
        elif self._apart and self.is_vertical_scroll_end and not self._changing.locked():
            self.run_worker(self.load_later(), group="later")

    def _mark_earlier(self) -> None:
        earlier = self.query_one("#earlier", Static)
        earlier.display = self._first > 0
        earlier.update(Content(f"▲ {self._first} earlier messages"))
        self.query_one("#welcome").display = not self._turns

    def view_of(self, turn: Turn) -> MessageView | None:
        """The mounted view of a turn; newest first, because that is what is asked for."""
        return next((v for v in reversed(self._views) if v.turn is turn), None)

    def mark_heads(self) -> None:
        """Draws the heads again: what they mark has changed."""
        for view in self._views:
            view.mark_head()

    def welcome(self, text: Content) -> None:
        """What stands in an empty chat."""
        self.query_one("#welcome", Static).update(text)

    def fold_thinking(self) -> None:
        """Folds all thinking if any is unfolded, else unfolds all."""
        self.before_growth()
        self.no_news()
        fold = any(view.unfolded for view in self._views)
        for view in self._views:
            view.fold(fold)

    # Following

    @property
    def _at_end(self) -> bool:
        return self.is_vertical_scroll_end and not self._apart

    def follow(self) -> None:
        """To the end of what is mounted, and stay there."""
        self.anchor()
        self.settle()

    def before_growth(self) -> None:
        """Call before text is added: keeps the end in view if it is in view now."""
        if self._at_end:
            self.anchor()

    def no_news(self) -> None:
        """Call before something is folded or unfolded: lines that come of that are not new."""
        self._quiet = _QUIET

    def settle(self) -> None:
        """Call after changes and from a timer: tells how much there is below what is shown."""
        height = self.virtual_size.height - self._above
        if self._quiet:
            self._quiet -= 1
            self._seen += height - self._settled
        self._settled = height
        if self.is_vertical_scroll_end:
            self._seen = height
        if self._apart:
            unseen = (0, len(self._turns) - self._last)
        else:
            unseen = (max(0, height - self._seen) if self._turns else 0, 0)
        if unseen != self._unseen:
            self._unseen = unseen
            self.post_message(self.Unseen(*unseen))

    # Width

    @property
    def text_width(self) -> int:
        """Cells for a message's text; while nothing of it is shown, as many as there were last."""
        return max(20, min(MAX_WIDTH, self.scrollable_content_region.width or self._width + _SIDES) - _SIDES)

    def on_resize(self) -> None:
        if self._reflow is not None:
            self._reflow.stop()
        self._reflow = self.set_timer(0.1, self._new_width)

    def _new_width(self) -> None:
        if self.text_width != self._width:
            self._width = self.text_width
            for view in self._views:
                view.lay_out(self._width)
