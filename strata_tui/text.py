"""Plain text that is safe to show, print and copy: control and escape characters taken out.

Model output, file names and chat titles are untrusted. Whatever reaches a terminal passes through here first.
"""

from __future__ import annotations

import re

# Escape sequences go as a whole, so that "\x1b[31mred" leaves "red". Bodies of control strings (titles, clipboard
# writes) are limited to one line and 512 characters: a lone introducer must not swallow an answer. C1 characters are
# dropped one by one and never taken as introducers, because wrongly decoded text is full of them.
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,16}[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b\n]{0,512}(?:\x07|\x1b\\)"
    r"|\x1b[ -/]{0,4}[0-~]"
)
# The end of a text that may still become one of the above, or the first half of "\r\n".
_UNDECIDED = re.compile(
    r"(?:\r|\x1b(?:\[[0-?]{0,64}[ -/]{0,16}|[\]PX^_][^\x07\x1b\n\r\x85\u2028\u2029]{0,512}\x1b?|[ -/]{0,4})?)\Z"
)
_LINE_END = re.compile("\r\n|[\r\x85\u2028\u2029]")
# C0 except tab and newline, DEL, C1, bidirectional embeddings, overrides and isolates.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """`text` without control and escape characters; every kind of line end becomes a newline, tabs stay.

    Lone surrogates, which no encoder accepts, become U+FFFD. The result is the same when cleaned again.
    """
    if text.isprintable():
        return text
    text = _SEQUENCE.sub("", _LINE_END.sub("\n", text))
    return _SURROGATE.sub("\ufffd", _CONTROL.sub("", text))


def clean_line(text: str) -> str:
    """`clean` for what must stay on one line (titles, file names, table cells): runs of white space become a space."""
    return " ".join(clean(text).split())


class Cleaner:
    """`clean` for text that arrives in pieces: the pieces' results, joined, are `clean` of the whole."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """What is certain so far; an escape sequence or line end cut in two is held back until its rest arrives."""
        text = self._held + text
        match = _UNDECIDED.search(text)
        cut = match.start() if match else len(text)
        self._held = text[cut:]
        return clean(text[:cut])

    def finish(self) -> str:
        """What was held back. The cleaner is empty afterwards."""
        held, self._held = self._held, ""
        return clean(held)
