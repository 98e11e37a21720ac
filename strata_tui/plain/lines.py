"""Reading a person's lines, and writing ours."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from ..term.signals import Waiting
from ..text import clean

CONTINUED, BLOCK = "\\", '"""'
_REPORT_SECONDS = 10.0  # between two lines about the same long work


class Lines:
    """`source` gives lines; prompts are written only to a person at a terminal."""

    def __init__(self, source: TextIO, out: TextIO) -> None:
        self._source = source
        self._out = out
        self._asks = source.isatty()
        self._waiting = Waiting() if self._asks else None
        self._read_ahead = b""  # from a person's terminal, behind the end of a line
        self._last = "\n"  # the character written last

    def say(self, text: str) -> None:
        """Writes a line, after the end of what was being written."""
        self.end()
        self._out.write(clean(text) + "\n")
        self._out.flush()

    def write(self, text: str) -> None:
        """Writes a piece of a reply, which is clean already."""
        if text:
            self._out.write(text)
            self._out.flush()
            self._last = text[-1]

    def end(self) -> None:
        """Ends the line that is being written."""
        if self._last != "\n":
            self.write("\n")

    def ask(self, prompt: str = "You: ") -> str | None:
        """The next message: one line, or more where a line ends with a backslash or the first is three quotes.

        None at the end of the input. Raises KeyboardInterrupt.
        """
        self.end()
        line = self._read(prompt)
        if line is None:
            return None
        if line.strip() == BLOCK:
            return self._block()
        lines = [line]
        while lines[-1].endswith(CONTINUED):
            lines[-1] = lines[-1].removesuffix(CONTINUED)
            more = self._read("more: ")
            if more is None:
                break
            lines.append(more)
        return "\n".join(lines)

    def _block(self) -> str:
        lines: list[str] = []
        while (line := self._read("")) is not None and line.strip() != BLOCK:
            lines.append(line)
        return "\n".join(lines)

    def _read(self, prompt: str) -> str | None:
        if self._asks and prompt:
            self._out.write(prompt)
            self._out.flush()
        line = self._typed(self._waiting) if self._waiting else self._source.readline()
        if not line:
            return None
        return line.removesuffix("\n").removesuffix("\r")

    def _typed(self, waiting: Waiting) -> str:
        """A line as readline gives it, but no ctrl+c is lost on the way into the read."""
        data, self._read_ahead = self._read_ahead, b""
        while b"\n" not in data:
            waiting.until_readable(self._source.fileno())
            more = os.read(self._source.fileno(), 65536)
            if not more:
                break
            data += more
        line, end, self._read_ahead = data.partition(b"\n")
        return (line + end).decode(self._source.encoding, "replace")


class Steps:
    """Long work in a few lines: each stage when it begins, and how far it is now and then."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._stage = ""
        self._told = 0.0

    def step(self, stage: str, done: int, total: int) -> None:
        """Takes progress; writes what is worth a line."""
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._told = stage, now
            self._say(f"{stage[:1].upper()}{stage[1:]}.")
        elif now - self._told >= _REPORT_SECONDS:
            self._told = now
            self._say(f"{stage[:1].upper()}{stage[1:]}: {100 * done // total} %." if total else "Still at it.")


def standard() -> Lines:
    """The program's own input and output."""
    return Lines(sys.stdin, sys.stdout)
