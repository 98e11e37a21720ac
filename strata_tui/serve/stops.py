"""Texts that end a reply, found across the pieces in which it comes."""

from __future__ import annotations

from collections.abc import Sequence


class Stops:
    """`found` once one of them has come; what could become one is held back until it is known."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.found = False

    def feed(self, text: str) -> str:
        """The next piece; what may be shown of it and of what was held back."""
        if self.found:
            return ""
        text = self._held + text
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            self.found, self._held = True, ""
            return text[: min(places)]
        keep = max((self._begun(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was held back: the reply has ended without a stop."""
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _begun(text: str, stop: str) -> int:
        """How many characters at the text's end begin this stop."""
        return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
