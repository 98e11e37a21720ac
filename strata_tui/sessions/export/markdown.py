"""A chat as markdown with YAML front matter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ... import __version__
from ...text import clean, clean_line
from ..rows import MessageRow, Role, SessionInfo
from .document import safe_line
from .numbers import iso_date, numbers_of
from .parts import Entry, Part, parts_of

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


def to_markdown(
    session: SessionInfo, messages: Sequence[MessageRow], *, whole: bool = False, thinking: bool = False
) -> str:
    """Front matter with the replies' numbers (null is unknown), and a heading a turn.

    `messages`: one branch, or with `whole` all; then the turns are numbered, and the branches follow each
    other, each from where it leaves what came before. Control and escape characters are taken out. With
    `thinking`, a reply's thinking is quoted above it.
    """
    parts = parts_of(session, messages)
    lines = ["---", *_front_matter(session, parts, whole), "---", "", f"# {clean_line(session.title) or 'Chat'}", ""]
    if session.system:
        lines += ["## System", "", _closed(clean(session.system)), ""]
    for number, part in enumerate(parts, 1):
        if number > 1:
            place = "the start" if part.after is None else f"message {part.after}"
            lines += [f"# Branch {number}, from {place}", ""]
        for entry in part.entries:
            lines += [f"## {_heading(entry) if whole else entry.heading}", "", *_body(entry.message, thinking)]
    return "\n".join(lines)


def _heading(entry: Entry) -> str:
    versions = f", version {entry.version} of {entry.versions}" if entry.versions > 1 else ""
    return f"{entry.number}. {entry.heading}{versions}"


def _body(message: MessageRow, thinking: bool) -> Iterator[str]:
    if thinking and message.thinking:
        yield from (f"> {line}".rstrip() for line in _closed(clean(message.thinking)).split("\n"))
        yield ""
    if message.text:
        yield from (_closed(clean(message.text)), "")
    if message.note:
        yield from (f"*{clean_line(message.note)}*", "")


def _front_matter(session: SessionInfo, parts: Sequence[Part], whole: bool) -> Iterator[str]:
    # a JSON value is a YAML value
    yield f"title: {safe_line(clean_line(session.title))}"
    yield f"model: {safe_line(clean_line(session.model))}"
    yield f"created: {safe_line(iso_date(session.created))}"
    yield f"updated: {safe_line(iso_date(session.updated))}"
    yield f"exported_by: {safe_line(f'strata-tui {__version__}')}"
    yield f"chat: {session.id}"
    if whole:
        yield f"branches: {len(parts)}"
    replies = [e for part in parts for e in part.entries if e.message.role is Role.ASSISTANT]
    yield "replies:" if replies else "replies: []"
    for entry in replies:
        numbers = numbers_of(entry.message) | ({"message": entry.number} if whole else {})
        for i, (key, value) in enumerate(numbers.items()):
            yield f"{'  - ' if i == 0 else '    '}{key}: {safe_line(value)}"


def _closed(text: str) -> str:
    """The text, with a code fence that was left open (a stopped reply) closed."""
    text = text.rstrip("\n")
    fence = ""
    for line in text.split("\n"):
        match = _FENCE.fullmatch(line)
        if match is None:
            continue
        marks, rest = match.groups()
        if not fence:
            if marks[0] == "~" or "`" not in rest:
                fence = marks
        elif marks[0] == fence[0] and len(marks) >= len(fence) and not rest.strip():
            fence = ""
    return f"{text}\n{fence}" if fence else text
