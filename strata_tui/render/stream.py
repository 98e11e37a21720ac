"""Markdown that arrives in pieces.

Only the last, open block is compiled again with each piece; blocks before it are settled, and a long open fence is
settled line by line. What a later piece can still change in settled text (a link whose reference is defined further
down) is put right by `finish`, which compiles the whole message once more: the end result is `compile_chunks` of the
source, whatever the pieces were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from textual.content import Content

from strata_tui.render.chunks import Chunker, compile_chunks
from strata_tui.render.tail import Tail
from strata_tui.text import Cleaner

LARGE_TAIL: Final = 4_096
GROWTH: Final = 64
"""An open block of more than LARGE_TAIL characters is compiled again only when it has grown by 1/GROWTH: work stays
proportional to the text, and the picture lags by at most that much."""


@dataclass(frozen=True, slots=True)
class Update:
    """What a piece changed."""

    changed: Mapping[int, Content]
    """New content by chunk number; the last numbers may be new ones."""
    count: int
    """How many chunks there are now; those with higher numbers are gone."""


class StreamingMarkdown:
    """The chunks of a message while it is written. `width` as in `compile_markdown`."""

    def __init__(self, width: int | None = None) -> None:
        self._width = width
        self._cleaner = Cleaner()
        self._pieces: list[str] = []
        self._fresh = 0
        self._finished = False
        self._work = 0
        self._tail = Tail(width)
        self._settled = Chunker()
        self._chunks: list[Content] = []

    @property
    def chunks(self) -> list[Content]:
        """The message so far; joined with line ends they are one text."""
        return self._chunks.copy()

    @property
    def source(self) -> str:
        """The Markdown so far, without control characters."""
        return "".join(self._pieces)

    @property
    def compiled_chars(self) -> int:
        """Characters parsed or highlighted so far: a measure of the work."""
        return self._work + self._tail.compiled_chars

    def feed(self, text: str) -> Update:
        """Takes the next piece of the message."""
        if self._finished:
            raise ValueError("the message is finished")
        self._take(self._cleaner.feed(text))
        if len(self._tail.text) > LARGE_TAIL and self._fresh * GROWTH < len(self._tail.text):
            return Update({}, len(self._chunks))
        return self._show()

    def finish(self) -> Update:
        """The message is complete."""
        if self._finished:
            return Update({}, len(self._chunks))
        self._take(self._cleaner.finish())
        self._finished = True
        return self._compile_all()

    def resize(self, width: int | None) -> Update:
        """Lays the message out for another width."""
        if width == self._width:
            return Update({}, len(self._chunks))
        self._width = width
        if self._finished:
            return self._compile_all()
        self._work += self._tail.compiled_chars
        self._tail, self._settled = Tail(width), Chunker()
        self._tail.add(self.source)
        return self._show()

    def _take(self, text: str) -> None:
        self._pieces.append(text)
        self._tail.add(text)
        self._fresh += len(text)

    def _show(self) -> Update:
        first = len(self._settled.closed)
        settled, still_open = self._tail.advance()
        self._settled.add(settled)
        self._fresh = 0
        return self._replace(first, self._settled.closed[first:] + self._settled.open_chunks(still_open))

    def _compile_all(self) -> Update:
        source = self.source
        self._work += len(source)
        return self._replace(0, compile_chunks(source, self._width))

    def _replace(self, first: int, chunks: Sequence[Content]) -> Update:
        """Puts `chunks` in the place of all from `first` on."""
        old = self._chunks[first:]
        changed = {
            first + index: chunk
            for index, chunk in enumerate(chunks)
            if index >= len(old) or not chunk.is_same(old[index])
        }
        # Unchanged chunks stay the same objects, so that their widgets' caches stay good.
        self._chunks[first:] = [chunk if first + index in changed else old[index] for index, chunk in enumerate(chunks)]
        return Update(changed, len(self._chunks))
