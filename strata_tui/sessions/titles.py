"""A chat's title from what it begins with."""

from __future__ import annotations

import re

from ..text import clean_line

TITLE_LENGTH = 60
_FENCE = re.compile(r" {0,3}(?:`{3,}|~{3,})")
_MARKS = re.compile(r"(?:#{1,6}|[-*+>]|\d{1,9}[.)])\s+")  # of a heading, a list or a quote


def title_from(text: str) -> str:
    """A title from a message: its first line with words, cut after a word to 60 characters.

    Marks of markdown before the words are left out, and so is the line that opens a code block.
    """
    lines = [clean_line(line) for line in text.splitlines() if not _FENCE.match(line)]
    words = next((line for line in lines if any(c.isalnum() for c in line)), "")
    title = words or next(filter(None, lines), "") or clean_line(text)
    while match := _MARKS.match(title):
        title = title[match.end() :]
    if len(title) <= TITLE_LENGTH:
        return title
    head = title[: TITLE_LENGTH - 1]
    if not title[TITLE_LENGTH - 1].isspace() and " " in head:
        head = head[: head.rindex(" ")]
    return head.rstrip() + "…"
