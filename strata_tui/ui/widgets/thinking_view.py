"""A reply's thinking: live in a small box, folded to one line when it is done."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ...text import Cleaner, clean
from .. import format as f
from ..chat import Turn

_LIVE_LINES = 6


class ThinkingView(Vertical):
    """A click, or `fold`, shows or hides the text."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._turn = turn
        self._live = turn.live and not turn.text
        self._folded = not self._live
        self._taken = len(turn.thinking)
        self._cleaner = Cleaner()
        self._text = self._cleaner.feed(turn.thinking) if self._live else clean(turn.thinking)
        self._title = Static(classes="thinking-title")
        self._body = Static(Content(self._text), classes="thinking-text")
        self._box = VerticalScroll(self._body, classes="thinking-box", can_focus=False)

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._box

    def on_mount(self) -> None:
        self._box.anchor()
        self.sync()

    @property
    def folded(self) -> bool:
        """Whether only the title is shown."""
        return self._folded

    def sync(self) -> None:
        """Shows what the turn's thinking has become since; folds once the reply's own text has begun."""
        piece = self._turn.thinking[self._taken :]
        self._taken += len(piece)
        if piece:
            self._text += self._cleaner.feed(piece)
            self._body.update(Content(self._text))
        if self._live and (self._turn.text or not self._turn.live):
            self._live = False
            self._folded = True
        self._show()

    def fold(self, folded: bool) -> None:
        """Shows or hides the text."""
        self._folded = folded
        self._show()

    def on_click(self) -> None:
        self.fold(not self._folded)

    def _show(self) -> None:
        self._box.display = not self._folded
        self._box.styles.max_height = _LIVE_LINES if self._live else None
        title = thinking_title(self._live, self._folded, self._turn.thinking_seconds)
        self._title.update(Content(title))


def thinking_title(live: bool, folded: bool, seconds: float | None) -> str:
    """`▸ Thought for 6.10 s`; without a time where it is not known."""
    mark = "▸" if folded else "▾"
    verb = "Thinking" if live else "Thought"
    joint = "  " if live else " for "
    return f"{mark} {verb}" + ("" if seconds is None else joint + f.seconds(seconds))
