"""A reply's thinking: live in a small box, folded to one line when it is done."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.widgets import Static

from ...render.layout import join_lines, split_lines, wrap_lines
from ...render.plain import StreamingPlain
from ...text import clean
from .. import format as f
from ..chat import Turn
from .chunks import Chunks

LIVE_LINES = 6
_INDENT = 2


class ThinkingView(Vertical):
    """Folded: a line. Live: its last lines. Unfolded, by a click or `fold`: all of it, also while it grows."""

    def __init__(self, turn: Turn, width: int) -> None:
        super().__init__()
        self._turn = turn
        self._width = width
        self._unfolded = False
        self._title = Static(classes="thinking-title")
        self._box = Static(classes="thinking-box")
        self._whole = Chunks(self, lambda: self._box)
        self._stream = StreamingPlain()
        self._whole_shown = True
        self._taken = 0  # characters of the thinking that the stream has

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._box

    def on_mount(self) -> None:
        self.sync()

    @property
    def live(self) -> bool:
        """Whether it is being written; the reply's own text ends it."""
        return self._turn.live and not self._turn.text

    @property
    def unfolded(self) -> bool:
        """Whether all of it is shown."""
        return self._unfolded

    def sync(self) -> None:
        """Shows what the turn's thinking has become since."""
        turn, live = self._turn, self.live
        self._title.update(thinking_title(live, self._unfolded, turn.thinking_seconds, turn.thinking_tokens))
        boxed = live and not self._unfolded
        self._box.display = boxed
        if self._unfolded != self._whole_shown:
            self._whole_shown = self._unfolded
            self._whole.display(self._unfolded)
        if boxed:
            self._box.update(last_lines(turn.thinking, self._width - _INDENT))
        if self._unfolded and self._taken < len(turn.thinking):
            piece = turn.thinking[self._taken :]
            self._taken = len(turn.thinking)
            self._whole.apply(self._stream.feed(piece), growing=live)

    def fold(self, folded: bool) -> None:
        """Shows all of it, or not."""
        self._unfolded = not folded
        self.sync()

    def lay_out(self, width: int) -> None:
        """Takes another width."""
        self._width = width
        self.sync()

    def on_click(self, event: Click) -> None:
        if event.widget is self._title:
            self.fold(self._unfolded)


def last_lines(text: str, width: int) -> Content:
    """The last lines of a text, wrapped to `width` cells: LIVE_LINES at most."""
    end = clean(text[-LIVE_LINES * width * 2 :]).rstrip()
    return join_lines(wrap_lines(split_lines(Content(end)), width)[-LIVE_LINES:])


def thinking_title(live: bool, unfolded: bool, seconds: float | None, tokens: int) -> str:
    """`▸ Thought for 6.10 s, 412 tokens`; without what is not known."""
    numbers = [f.seconds(seconds)] if seconds is not None else []
    if tokens:
        numbers.append(f"{f.count(tokens)} token{'s' if tokens > 1 else ''}")
    verb = "Thinking" if live else "Thought"
    joint = " for " if not live and seconds is not None else "  "
    return f"{'▾' if live or unfolded else '▸'} {verb}" + (joint + ", ".join(numbers) if numbers else "")
