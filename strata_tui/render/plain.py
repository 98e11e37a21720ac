"""Plain text as chunks, also while it grows."""

from __future__ import annotations

from textual.content import Content

from strata_tui.render.chunks import Chunker
from strata_tui.render.stream import Update
from strata_tui.text import Cleaner


class StreamingPlain:
    """The chunks of a text that is shown as it is, without control characters; only the last ones change."""

    def __init__(self) -> None:
        self._cleaner = Cleaner()
        self._settled = Chunker()
        self._open = ""  # the last line, which may grow

    def feed(self, text: str) -> Update:
        """Takes the next piece."""
        *lines, self._open = (self._open + self._cleaner.feed(text)).split("\n")
        first = len(self._settled.closed)
        self._settled.add(map(Content, lines))
        chunks = self._settled.closed[first:] + self._settled.open_chunks([Content(self._open)])
        return Update({first + n: chunk for n, chunk in enumerate(chunks)}, first + len(chunks))
