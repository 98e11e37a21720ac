"""One message: its role, its thinking, and its text as a few chunks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from ...render.chunks import compile_chunks
from ...render.stream import StreamingMarkdown, Update
from ...sessions.rows import Role, Status
from ...text import clean, clean_line
from .. import format as f
from ..attachments import folded
from ..chat import Turn
from .thinking_view import ThinkingView

_STATUS_WORDS = {
    Status.RUNNING: "running in another program",
    Status.STOPPED: "stopped",
    Status.ERROR: "ended with an error",
    Status.INTERRUPTED: "interrupted: the program ended",
}


class MessageView(Vertical):
    """A person's text is shown as it was typed; a reply's is rendered markdown, also while it grows."""

    def __init__(self, turn: Turn, width: int) -> None:
        super().__init__(classes=turn.role.value)
        self.turn = turn
        self._width = width
        self._thinking: ThinkingView | None = None
        self._chunks: list[Static] = []
        self._stream = StreamingMarkdown(width) if turn.live else None
        self._taken = 0  # characters of the turn's text that the stream has
        self._ready = False
        self._foot = Static(classes="message-foot")

    def compose(self) -> ComposeResult:
        turn = self.turn
        with Horizontal(classes="message-head"):
            yield Static(Content.styled(role_name(turn), "bold"), classes="message-role")
            yield Static(Content(clock(turn.created)), classes="message-time")
        if turn.thinking:
            self._thinking = ThinkingView(turn)
            yield self._thinking
        with Vertical(classes="message-body"):
            self._chunks = [Static(chunk) for chunk in self._first_chunks()]
            yield from self._chunks
        yield self._foot

    def on_mount(self) -> None:
        self._ready = True
        self.sync()

    def _first_chunks(self) -> Sequence[Content]:
        if self.turn.role is Role.USER:
            return [Content(clean(folded(self.turn.text)))]
        return [] if self._stream is not None else compile_chunks(self.turn.text, self._width)

    def sync(self) -> None:
        """Shows what the turn has become since; at its end the text is compiled once more as a whole."""
        if not self._ready:
            return  # done on mounting
        turn = self.turn
        if turn.thinking and self._thinking is None:
            self._thinking = ThinkingView(turn)
            self.mount(self._thinking, after=self.query_one(".message-head"))
        if self._thinking is not None:
            self._thinking.sync()
        if self._stream is not None:
            piece = turn.text[self._taken :]
            self._taken = len(turn.text)
            if piece:
                self._apply(self._stream.feed(piece))
            if not turn.live:
                self._apply(self._stream.finish())
                self._stream = None
        text = foot_text(turn)
        self._foot.update(Content(text))
        self._foot.display = bool(text)

    def lay_out(self, width: int) -> None:
        """Lays the text out for another width."""
        if width == self._width:
            return
        self._width = width
        if self.turn.role is Role.USER or not self._ready:
            return
        if self._stream is not None:
            self._apply(self._stream.resize(width))
        else:
            chunks = compile_chunks(self.turn.text, width)
            self._apply(Update(dict(enumerate(chunks)), len(chunks)))

    def _apply(self, update: Update) -> None:
        for number, content in sorted(update.changed.items()):
            if number < len(self._chunks):
                self._chunks[number].update(content)
            else:
                self._chunks.append(Static(content))
                self.query_one(".message-body").mount(self._chunks[-1])
        gone = self._chunks[update.count :]
        if gone:
            del self._chunks[update.count :]
            self.remove_children(gone)

    # Thinking

    @property
    def unfolded(self) -> bool:
        """Whether thinking is shown here."""
        return self._thinking is not None and not self._thinking.folded

    def fold(self, folded: bool) -> None:
        """Shows or hides the thinking."""
        if self._thinking is not None:
            self._thinking.fold(folded)


def role_name(turn: Turn) -> str:
    """`You`, or the model's name."""
    return "You" if turn.role is Role.USER else clean_line(turn.model) or "Assistant"


def clock(then: float) -> str:
    """Hours and minutes, local time."""
    return datetime.fromtimestamp(then).strftime("%H:%M")


def foot_text(turn: Turn) -> str:
    """How a reply ended, unless it simply ended, and its numbers."""
    if turn.role is Role.USER or turn.live:
        return ""
    parts = []
    if turn.status in _STATUS_WORDS:
        parts.append(f"■ {_STATUS_WORDS[turn.status]}" + (f": {clean_line(turn.note)}" if turn.note else ""))
    elif turn.note:  # it ended well, but not by itself: the context is full
        parts.append(f"■ {clean_line(turn.note)}")
    stats = turn.stats
    if stats is not None and stats.reply_tokens:
        parts.append(f"{f.count(stats.reply_tokens)} tokens")
        parts.append(f.rate(stats.decode_rate))
        parts.append(f"first {f.seconds(stats.first_token_seconds)}")
        parts.append(f"hit {f.percent(stats.counters.decode.hit_rate)}")
    return "  ".join(parts)
