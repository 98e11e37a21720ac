"""Chats as files: one branch as markdown, or the whole tree as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from .. import __version__
from ..atomic import write_new
from ..errors import UserError
from ..text import clean, clean_line
from .rows import MessageRow, Role, SessionInfo, Status

SCHEMA = "strata-tui chat"
SCHEMA_VERSION = 1

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


def to_markdown(session: SessionInfo, branch: Sequence[MessageRow], *, thinking: bool = False) -> str:
    """One branch, with YAML front matter (the replies' numbers; null is unknown) and a heading a turn.

    Control and escape characters are taken out. With `thinking`, a reply's thinking is quoted above it.
    """
    lines = ["---", *_front_matter(session, branch), "---", "", f"# {clean_line(session.title) or 'Chat'}", ""]
    if session.system:
        lines += ["## System", "", _closed(clean(session.system)), ""]
    for message in branch:
        title = "User" if message.role is Role.USER else "Assistant"
        if message.status is not Status.DONE:
            title += f" ({message.status.value})"
        lines += [f"## {title}", ""]
        if thinking and message.thinking:
            lines += [f"> {line}".rstrip() for line in _closed(clean(message.thinking)).split("\n")]
            lines.append("")
        if message.text:
            lines += [_closed(clean(message.text)), ""]
        if message.note:
            lines += [f"*{clean_line(message.note)}*", ""]
    return "\n".join(lines)


def to_json(session: SessionInfo, messages: Iterable[MessageRow]) -> str:
    """The whole tree, unchanged: all branches, each message with its parent's id, times in Unix seconds."""
    document = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "app": "strata-tui",
        "app_version": __version__,
        "session": asdict(session),
        "messages": [asdict(m) for m in messages],
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def file_name(session: SessionInfo, extension: str) -> str:
    """A name for an export, from the chat's number and title: `chat-12-what-is-a-slot.md`."""
    slug = re.sub(r"\W+", "-", clean_line(session.title).lower()).strip("-_")[:40].strip("-_")
    return "-".join(filter(None, ("chat", str(session.id), slug))) + "." + extension


def write_export(text: str, path: Path) -> Path:
    """Writes an export, never over a file that exists (`-2` and so on is added); the path written.

    Raises UserError.
    """
    try:
        return write_new(path, text)
    except OSError as error:
        raise UserError(f"The export cannot be written to {path}: {error.strerror}.") from error


def _front_matter(session: SessionInfo, branch: Sequence[MessageRow]) -> Iterator[str]:
    # a JSON value is a YAML value
    yield f"title: {_value(clean_line(session.title))}"
    yield f"model: {_value(clean_line(session.model))}"
    yield f"created: {_value(_date(session.created))}"
    yield f"updated: {_value(_date(session.updated))}"
    yield f"exported_by: {_value(f'strata-tui {__version__}')}"
    yield f"chat: {session.id}"
    replies = [m for m in branch if m.role is Role.ASSISTANT]
    yield "replies:" if replies else "replies: []"
    for message in replies:
        for i, (key, value) in enumerate(_numbers(message).items()):
            yield f"{'  - ' if i == 0 else '    '}{key}: {_value(value)}"


def _numbers(message: MessageRow) -> dict[str, object]:
    head: dict[str, object] = {
        "message": message.id,
        "model": clean_line(message.model),
        "created": _date(message.created),
        "status": message.status.value,
    }
    stats = message.reply_stats
    if stats is None:
        return head
    return head | {
        "prompt_tokens": stats.prompt_tokens,
        "reused_tokens": stats.reused_tokens,
        "reply_tokens": stats.reply_tokens,
        "prompt_tokens_per_second": _rounded(stats.prompt_rate, 2),
        "tokens_per_second": _rounded(stats.decode_rate, 2),
        "first_token_seconds": _rounded(stats.first_token_seconds, 3),
        "prompt_hit_rate": _rounded(stats.counters.prompt.hit_rate, 4),
        "hit_rate": _rounded(stats.counters.decode.hit_rate, 4),
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


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
