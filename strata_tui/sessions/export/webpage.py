"""A chat as one HTML file: no script, nothing loaded from elsewhere, light or dark as the reader's system is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from html import escape
from pathlib import Path

from ... import __version__
from ...text import clean, clean_line
from ..rows import MessageRow, Role, SessionInfo
from .markup import code_styles, to_markup
from .numbers import iso_date, numbers_of
from .parts import Entry, Part, parts_of

# What a browser may load for this page: its own style, and nothing else.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def to_html(
    session: SessionInfo, messages: Sequence[MessageRow], *, whole: bool = False, thinking: bool = False
) -> str:
    """The page. A person's text is as it was typed, a reply's is rendered markdown; all of it is escaped.

    `messages`: one branch, or with `whole` all; then the branches follow each other, each from where it
    leaves what came before. With `thinking`, a reply's thinking is folded above it.
    """
    parts = parts_of(session, messages)
    title = escape(clean_line(session.title) or "Chat")
    return "\n".join(
        [
            "<!DOCTYPE html>",
            "<html>",
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f'<meta name="generator" content="strata-tui {__version__}">',
            f"<title>{title}</title>",
            f"<style>\n{_styles()}</style>",
            "</head>",
            "<body>",
            f'<header><h1 dir="auto">{title}</h1>',
            f"<p>{escape(_about(session, len(parts), whole))}</p></header>",
            *_system(session),
            "<main>",
            *(line for number, part in enumerate(parts, 1) for line in _part(part, number, whole, thinking)),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _about(session: SessionInfo, branches: int, whole: bool) -> str:
    facts = [clean_line(session.model), f"begun {iso_date(session.created)}", f"last used {iso_date(session.updated)}"]
    if whole:
        facts.append(f"{branches} branches" if branches > 1 else "1 branch")
    return " · ".join(filter(None, [*facts, f"exported by strata-tui {__version__}"]))


def _system(session: SessionInfo) -> Iterator[str]:
    if session.system:
        yield f'<details class="system"><summary>System prompt</summary>{_plain(session.system)}</details>'


def _part(part: Part, number: int, whole: bool, thinking: bool) -> Iterator[str]:
    if number > 1:
        place = "the start" if part.after is None else f'<a href="#m{part.after}">message {part.after}</a>'
        yield f'<h2 class="branch">Branch {number}, from {place}</h2>'
    for entry in part.entries:
        yield from _message(entry, whole, thinking)


def _message(entry: Entry, whole: bool, thinking: bool) -> Iterator[str]:
    message = entry.message
    yield f'<article class="{message.role.value}" id="m{entry.number}">'
    name = clean_line(message.model) if message.role is Role.ASSISTANT else ""
    head = [f"<b>{escape(entry.heading)}</b>", escape(name), f"<time>{iso_date(message.created)}</time>"]
    if whole:
        head.insert(0, f'<a href="#m{entry.number}">{entry.number}</a>')
        if entry.versions > 1:
            head.append(f"version {entry.version} of {entry.versions}")
    yield f"<h3>{' '.join(filter(None, head))}</h3>"
    if thinking and message.thinking:
        yield f"<details><summary>Thinking</summary>{_plain(message.thinking)}</details>"
    text = clean(message.text)
    if text:
        yield _plain(text) if message.role is Role.USER else f'<div class="text" dir="auto">{to_markup(text)}</div>'
    if message.note:
        yield f'<p class="note">{escape(clean_line(message.note))}</p>'
    if message.role is Role.ASSISTANT and message.stats is not None:
        yield f"<footer>{escape(_numbers(message))}</footer>"
    yield "</article>"


def _plain(text: str) -> str:
    return f'<div class="plain" dir="auto">{escape(clean(text))}</div>'


def _numbers(message: MessageRow) -> str:
    numbers = numbers_of(message)

    def shown(name: str, form: str, unit: str = "") -> str:
        value = numbers[name]
        return "–" if value is None else format(value, form) + unit

    return " · ".join(
        [
            f"{shown('prompt_tokens', 'd')} prompt tokens ({shown('reused_tokens', 'd')} reused, "
            f"{shown('read_again_tokens', 'd')} read again)",
            f"{shown('reply_tokens', 'd')} tokens",
            shown("tokens_per_second", ".1f", " tok/s"),
            f"first {shown('first_token_seconds', '.2f', ' s')}",
            f"hit {shown('hit_rate', '.1%')}",
        ]
    )


@lru_cache(maxsize=1)
def _styles() -> str:
    own = Path(__file__).with_name("webpage.css").read_text(encoding="utf-8")
    return own + code_styles()
