"""A fenced code block that is still being written: bounded work per piece, however long the block gets.

Highlighting depends on what came before (a string may have opened 100 lines up), and Pygments cannot be resumed. So
lines are highlighted from a *restart*: a line where the lexer is back in its first state. It is found by trial: if the
lines after it come out the same with and without what precedes it, they no longer depend on that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from pygments.token import Token  # type: ignore[import-untyped]
from textual.content import Content

from strata_tui.render.code import highlight
from strata_tui.render.styles import token_style

OVERLAP: Final = 16
"""Lines that must come out the same for the lines above a restart to be settled."""
NEAR_OVERLAP: Final = 4
"""The same for lines that stay unsettled: a mistake there lasts at most until they are settled."""
MAX_UNSETTLED: Final = 160
"""Where no restart is found in so many lines (a very long string), one is forced; the final compile puts it right."""
_MAX_TRIALS: Final = 4
_INSIDE: Final = frozenset(map(token_style, (Token.Comment, Token.Literal.String, Token.Literal.String.Doc)))
_CLOSING_SO_FAR: Final = re.compile(r" {0,3}([`~])\1*[ \t]*\Z")


class OpenFence:
    """The lines of a fence as they arrive. `opening` is the fence's first line, `language` from its info string."""

    def __init__(self, opening: str, marker: str, language: str | None) -> None:
        self.language = language
        self.closed = False
        self.empty = True
        self.highlighted_chars = 0
        """Characters given to the highlighter so far; a measure of work."""
        self._marker = marker
        self._indent = len(opening) - len(opening.lstrip(" "))
        self._closing = re.compile(rf" {{0,3}}{re.escape(marker)}{re.escape(marker[0])}*[ \t]*\Z")
        self._lines: list[str] = []
        self._highlighted: list[Content] = []
        self._near = 0
        self._attempt_at = 2 * OVERLAP

    def add_line(self, line: str) -> list[Content]:
        """One more complete line, without its end. Returns the highlighted lines that it settled, in order."""
        if self._closing.match(line):
            self.closed = True
            return self._settle(len(self._lines))
        self.empty = False
        self._lines.append(self._unindented(line))
        if len(self._lines) < self._attempt_at:
            self._highlighted[self._near :] = self._highlight(self._lines[self._near :])
            self._move_near()
            return []
        self._highlighted = self._highlight(self._lines)
        restart = self._restart(0, OVERLAP)
        if restart:
            return self._settle(restart)
        if len(self._lines) >= MAX_UNSETTLED:
            return self._settle(len(self._lines) - OVERLAP)
        self._attempt_at = len(self._lines) + OVERLAP
        return []

    def unsettled(self, partial: str) -> list[Content]:
        """The highlighted lines after the settled ones, with the unfinished line `partial`."""
        # Half a closing fence is not shown as code.
        if not partial or (_CLOSING_SO_FAR.match(partial) and partial.lstrip(" ")[0] == self._marker[0]):
            return self._highlighted
        lines = [*self._lines[self._near :], self._unindented(partial)]
        return self._highlighted[: self._near] + self._highlight(lines)

    def _settle(self, count: int) -> list[Content]:
        settled = self._highlighted[:count]
        del self._lines[:count], self._highlighted[:count]
        self._near = max(0, self._near - count)
        self._attempt_at = 2 * OVERLAP
        return settled

    def _move_near(self) -> None:
        if len(self._lines) - self._near >= 2 * NEAR_OVERLAP:
            self._near = self._restart(self._near, NEAR_OVERLAP) or self._near

    def _restart(self, after: int, overlap: int) -> int:
        """The latest restart past line `after` with `overlap` lines to show for it; 0 if none is found."""
        # Blank lines look the same everywhere.
        written = [index for index, line in enumerate(self._lines) if line.strip()]
        if len(written) <= overlap:
            return 0
        for restart in islice(_candidates(self._highlighted, after, written[-overlap]), _MAX_TRIALS):
            if _same(self._highlighted[restart:], self._highlight(self._lines[restart:])):
                return restart
        return 0

    def _highlight(self, lines: Sequence[str]) -> list[Content]:
        code = "\n".join(lines)
        self.highlighted_chars += len(code)
        return highlight(code, self.language) if lines else []

    def _unindented(self, line: str) -> str:
        """`line` without as much white space as the opening line had; a tab reaches to the next fourth column."""
        column = index = 0
        while index < len(line) and column < self._indent and line[index] in " \t":
            column += 4 - column % 4 if line[index] == "\t" else 1
            index += 1
        return " " * (column - self._indent) + line[index:]


def _candidates(lines: Sequence[Content], after: int, last: int) -> Iterator[int]:
    """Lines from `last` back to `after`, without those that begin in a string or comment."""
    for index in range(last, after, -1):
        line = lines[index]
        start = len(line) - len(line.plain.lstrip())
        if not any(span.start <= start < span.end and span.style in _INSIDE for span in line.spans):
            yield index


def _same(these: Sequence[Content], those: Sequence[Content]) -> bool:
    return len(these) == len(those) and all(one.is_same(other) for one, other in zip(these, those, strict=True))
