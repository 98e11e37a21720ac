"""A reply of the plain chat, as it is written out."""

from __future__ import annotations

import time

from ..engine import events as ev
from ..sessions.rows import MessageRow
from ..text import Cleaner, clean_line
from .lines import Lines, Steps

_LONG_PROMPT = 512  # tokens from which on reading is said


class Written:
    """The thinking is named, and shown only when asked for. `old`: the reply that is gone on with."""

    def __init__(self, lines: Lines, show_thinking: bool, name: str, old: MessageRow | None = None) -> None:
        self._lines = lines
        self._shows = show_thinking
        self._name = clean_line(name)
        self._steps = Steps(lines.say)
        self._cleaner = Cleaner()
        self._thinker = Cleaner()
        self.text = old.text if old is not None else ""
        self.thinking = old.thinking if old is not None else ""
        self._headed = False  # the model's name is written
        self._began: float | None = None  # the thinking

    def take(self, event: ev.Event) -> None:
        """Writes what may be shown."""
        if isinstance(event, ev.PromptProgress):
            if event.total > _LONG_PROMPT:
                self._steps.step(f"reading {event.total} tokens", event.done, event.total)
        elif isinstance(event, ev.Notice):
            self._lines.say(f"Note: {event.text}")
        elif isinstance(event, ev.TextDelta) and event.thinking:
            self._think(event.text)
        elif isinstance(event, ev.TextDelta):
            if not self._headed:
                self._headed = True
                self._end_thinking()
                self._lines.say(f"{self._name}:")
            self.text += event.text
            self._lines.write(self._cleaner.feed(event.text))

    def _think(self, text: str) -> None:
        if self._began is None:
            self._began = time.monotonic()
            self._lines.say("Thinking.")
        self.thinking += text
        if self._shows:
            self._lines.write(self._thinker.feed(text))

    def finish(self) -> None:
        """Writes what was held back."""
        self._end_thinking()
        self._lines.write(self._cleaner.finish())
        self._lines.end()

    def _end_thinking(self) -> None:
        if self._began is not None:
            self._lines.write(self._thinker.finish())
            self._lines.say(f"Thought for {time.monotonic() - self._began:.0f} seconds.")
            self._began = None
