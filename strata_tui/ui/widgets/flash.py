"""One line of news above the status line: calmer than a toast, and it does not cover the text."""

from __future__ import annotations

from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

_SECONDS = 6.0


class Flash(Static):
    """Hidden while there is nothing to say."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._timer: Timer | None = None
        self._answers = False  # what is shown is about the last action
        self._text = ""
        self.display = False

    @property
    def text(self) -> str:
        """What is shown, or an empty text."""
        return self._text

    def say(self, text: str, error: bool = False, stay: bool | None = None, *, answers: bool = False) -> None:
        """Shows a sentence for some seconds; with `stay` (errors do, unless told) until something replaces it.

        `answers`: it is about the action just done, and stays until the next one.
        """
        self._stop_timer()
        self._answers = answers
        self._text = text
        self.set_class(error, "-error")
        self.update(Content(f"! {text}" if error else text))
        self.display = True
        if not (answers or (error if stay is None else stay)):
            self._timer = self.set_timer(_SECONDS, self.clear)

    def next_action(self) -> None:
        """Another action begins: what answered the one before goes."""
        if self._answers:
            self.clear()

    def clear(self) -> None:
        """Hides the line."""
        self._stop_timer()
        self._text, self._answers = "", False
        self.display = False

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
