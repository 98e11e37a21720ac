"""One message: its head, its thinking, its text as a few pieces, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from ...render.chunks import compile_chunks
from ...render.stream import StreamingMarkdown
from ...sessions.rows import Role, Status
from ...text import clean, clean_line
from .. import format as f
from ..attachments import folded
from ..chat import Turn
from ..panel_parts import flow
from .chunks import Chunks
from .growing import Growing
from .message_head import MessageHead
from .thinking_view import ThinkingView

_STATUS_WORDS = {
    Status.RUNNING: "running in another program",
    Status.STOPPED: "stopped",
    Status.ERROR: "ended with an error",
    Status.INTERRUPTED: "interrupted: the program ended",
}


class MessageView(Growing, Vertical):
    """A person's text is shown as it was typed; a reply's is rendered markdown, also while it grows."""

    def __init__(self, turn: Turn, width: int) -> None:
        super().__init__(classes=turn.role.value)
        self.turn = turn
        self._width = width
        self._head = MessageHead(turn)
        self._thinking: ThinkingView | None = None
        self._stream = StreamingMarkdown(width) if turn.live else None
        self._taken = 0  # characters of the turn's text that the stream has
        self._ready = False
        self._text = Chunks(self, self._above_text, self._first_chunks())
        self._foot: Static | None = None
        self._foot_text = ""

    def compose(self) -> ComposeResult:
        yield self._head
        if self.turn.thinking:
            self._thinking = ThinkingView(self.turn, self._width)
            yield self._thinking
        yield from self._text.pieces

    def on_mount(self) -> None:
        self._ready = True
        self.sync()

    def _first_chunks(self) -> Sequence[Content]:
        if self.turn.role is Role.USER:
            return [Content(clean(folded(self.turn.text)))]
        return [] if self._stream is not None else compile_chunks(self.turn.text, self._width)

    def _above_text(self) -> Widget:
        return self._thinking or self._head

    def sync(self) -> None:
        """Shows what the turn has become since; at its end the text is compiled once more as a whole."""
        if not self._ready:
            return  # done on mounting
        turn = self.turn
        if turn.thinking and self._thinking is None:
            self._thinking = ThinkingView(turn, self._width)
            self.mount(self._thinking, after=self._head)
        elif self._thinking is not None:
            self._thinking.sync()
        if turn.live and self._stream is None:  # it is gone on with
            self._stream, self._taken = StreamingMarkdown(self._width), 0
        if self._stream is not None:
            piece = turn.text[self._taken :]
            self._taken = len(turn.text)
            if piece:
                self._text.apply(self._stream.feed(piece), growing=True)
            if not turn.live:
                self._text.apply(self._stream.finish(), growing=False)
                self._stream = None
        self._show_foot(foot_text(turn))

    def _show_foot(self, text: str) -> None:
        if text == self._foot_text:
            return
        self._foot_text = text
        if self._foot is None:
            self._foot = Static(_flowing(text, self._width), classes="message-foot")
            self.mount(self._foot)
        else:
            self._foot.update(_flowing(text, self._width))
            self._foot.display = bool(text)
        self._foot.set_class(self.turn.status is Status.ERROR, "-failed")

    def mark_head(self) -> None:
        """Draws the head again: there may be another branch, or it is sent or not."""
        self._head.refresh()

    def lay_out(self, width: int) -> None:
        """Lays the text out for another width."""
        if width == self._width:
            return
        self._width = width
        if self._thinking is not None and self._ready:
            self._thinking.lay_out(width)
        if self._foot is not None:
            self._foot.update(_flowing(self._foot_text, width))
        if self.turn.role is Role.USER or not self._ready:
            return
        if self._stream is not None:
            self._text.apply(self._stream.resize(width), growing=True)
        else:
            self._text.show(compile_chunks(self.turn.text, width))

    # Thinking

    @property
    def unfolded(self) -> bool:
        """Whether all of the thinking is shown here."""
        return self._thinking is not None and self._thinking.unfolded

    def fold(self, folded: bool) -> None:
        """Shows or hides the thinking."""
        if self._thinking is not None:
            self._thinking.fold(folded)


def _flowing(text: str, width: int) -> Content:
    """A foot in lines of which none parts a number from its unit."""
    return Content("\n").join(flow(map(Content, text.split("  ")), "  ", width))


def foot_text(turn: Turn) -> str:
    """How a reply ended, unless it simply ended, and its numbers."""
    if turn.role is Role.USER or turn.live:
        return ""
    parts = []
    if turn.status in _STATUS_WORDS:
        mark = "!" if turn.status is Status.ERROR else "■"
        parts.append(f"{mark} {_STATUS_WORDS[turn.status]}" + (f": {clean_line(turn.note)}" if turn.note else ""))
    elif turn.note:  # it ended well, but not by itself: the context is full
        parts.append(f"■ {clean_line(turn.note)}")
    stats = turn.stats
    if stats is not None and stats.reply_tokens:
        parts.append(f"{f.count(stats.reply_tokens)} tokens")
        parts.append(f.rate(stats.decode_rate))
        parts.append(f"first {f.seconds(stats.first_token_seconds)}")
        parts.append(f"hit {f.percent(stats.counters.decode.hit_rate)}")
        if stats.prompt_tokens:
            again = f", {f.count(stats.read_again)} again" if stats.read_again else ""
            parts.append(f"read {f.count(stats.read_tokens)} of {f.count(stats.prompt_tokens)}{again}")
    return "  ".join(parts)
