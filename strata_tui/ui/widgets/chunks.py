"""A text as a few pieces under one another, of which only those that changed are drawn again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from ...render.layout import join_lines, split_lines
from ...render.stream import Update
from .growing import Growing

PIECE_ROWS = 8
_ROW_CHARS = 80  # of a line, about; longer ones are wrapped


class Piece(Growing, Static):
    """A chunk, or a part of the last one."""


class Chunks:
    """The pieces inside a widget. While the text grows its last chunk is several, so that few lines are drawn anew.

    They are children of their owner, without a container of their own: each widget costs with every layout.
    """

    def __init__(self, owner: Widget, above: Callable[[], Widget], chunks: Sequence[Content] = ()) -> None:
        """`above`: the sibling after which the pieces are mounted."""
        self._owner = owner
        self._above = above
        self._chunks = list(chunks)
        self._contents = list(chunks)  # of the pieces
        self.pieces = [Piece(chunk) for chunk in chunks]  # for the owner to compose

    def show(self, chunks: Sequence[Content]) -> None:
        """Shows these chunks and no others. As `apply`, it needs an owner that is mounted."""
        self._chunks = list(chunks)
        self._draw(self._chunks)

    def apply(self, update: Update, *, growing: bool) -> None:
        """Shows what changed. `growing`: the last chunk will change again."""
        for number, content in sorted(update.changed.items()):
            if number < len(self._chunks):
                self._chunks[number] = content
            else:
                self._chunks.append(content)
        del self._chunks[update.count :]
        if growing and self._chunks:
            self._draw([*self._chunks[:-1], *_split(self._chunks[-1])])
        else:
            self._draw(self._chunks)

    def display(self, shown: bool) -> None:
        """Shows or hides all of them."""
        for piece in self.pieces:
            piece.display = shown

    def _draw(self, contents: Sequence[Content]) -> None:
        for number, content in enumerate(contents[: len(self.pieces)]):
            if not content.is_same(self._contents[number]):
                self._contents[number] = content
                piece = self.pieces[number]
                width, height = piece.size
                piece.update(content, layout=not width or content.get_height({}, width) != height)
        fresh = [Piece(content) for content in contents[len(self.pieces) :]]
        if fresh:
            self._owner.mount_all(fresh, after=self.pieces[-1] if self.pieces else self._above())
            self._contents += contents[len(self.pieces) :]
            self.pieces += fresh
        gone = self.pieces[len(contents) :]
        if gone:
            del self.pieces[len(contents) :], self._contents[len(contents) :]
            self._owner.remove_children(gone)


def _split(chunk: Content) -> Iterator[Content]:
    """A chunk in pieces; joined with line ends they are the chunk. None but the last ends with a blank line."""
    lines = split_lines(chunk)
    start = 0
    while start < len(lines):
        end, rows = start, 0
        while end < len(lines) and (rows < PIECE_ROWS or not lines[end - 1]):
            rows += 1 + len(lines[end]) // _ROW_CHARS
            end += 1
        yield join_lines(lines[start:end])
        start = end
