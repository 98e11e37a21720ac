"""Rendered lines grouped into chunks, each drawn by one widget.

A message is few widgets, not one a block, and while it grows only the last ones change. Chunks joined with a line end
are the whole message: a blank line between two blocks belongs to the chunk of the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from textual.content import Content

from strata_tui.render.blocks import Block, compile_markdown, page_lines
from strata_tui.render.layout import join_lines

CHUNK_LINES: Final = 60
CHUNK_CHARS: Final = 4_000
"""A chunk ends before the line that would take it over either bound."""


class Chunker:
    """Groups lines as they come; where a chunk ends depends on the lines before it alone."""

    def __init__(self) -> None:
        self.closed: list[Content] = []
        """Full chunks: they never change again."""
        self._lines: list[Content] = []
        self._chars = 0

    def add(self, lines: Iterable[Content]) -> None:
        for line in lines:
            self._append(line)

    def open_chunks(self, more: Iterable[Content] = ()) -> list[Content]:
        """The chunks after the closed ones, as they would be if `more` lines were added."""
        probe = Chunker()
        probe._lines, probe._chars = self._lines.copy(), self._chars
        probe.add(more)
        return probe.closed + ([join_lines(probe._lines)] if probe._lines else [])

    def _append(self, line: Content) -> None:
        full = len(self._lines) >= CHUNK_LINES or self._chars + len(line) > CHUNK_CHARS
        if full and any(self._lines):
            # A blank line at the end belongs to what follows.
            above = [] if self._lines[-1] else [self._lines.pop()]
            self.closed.append(join_lines(self._lines))
            self._lines, self._chars = above, 0
        self._lines.append(line)
        self._chars += len(line)


def chunk_blocks(blocks: Sequence[Block]) -> list[Content]:
    """The chunks of a whole message."""
    chunker = Chunker()
    chunker.add(page_lines(blocks))
    return chunker.closed + chunker.open_chunks()


def compile_chunks(source: str, width: int | None = None) -> list[Content]:
    """`compile_markdown`, grouped for drawing: what `StreamingMarkdown` ends with."""
    return chunk_blocks(compile_markdown(source, width))
