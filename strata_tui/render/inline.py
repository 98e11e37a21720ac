"""Inline tokens (emphasis, code, links, ...) to styled `Content`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markdown_it.token import Token
from textual.content import Content, Span
from textual.style import Style

from strata_tui.render import styles
from strata_tui.render.layout import TAB_SIZE
from strata_tui.text import clean

_PAIRS: Final = {"strong": styles.STRONG, "em": styles.EMPHASIS, "s": styles.STRIKE, "link": styles.LINK}
_LINE_BREAK_TAGS: Final = frozenset({"<br>", "<br/>", "<br />"})
_OPENABLE: Final = ("http://", "https://", "mailto:")


class _Writer:
    """Collects text and spans; a span's place is kept when it opens, so that inner styles win over outer ones."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.length = 0
        self.spans: list[Span | None] = []
        self.open: list[tuple[int, int, int, str]] = []

    def add(self, text: str, style: str | Style = "") -> None:
        if not text:
            return
        self.parts.append(text)
        if style:
            self.spans.append(Span(self.length, self.length + len(text), style))
        self.length += len(text)

    def push(self, style: str, address: str = "") -> None:
        self.open.append((len(self.spans), len(self.parts), self.length, address))
        self.spans.append(Span(self.length, self.length, style))
        if address.startswith(_OPENABLE):
            self.spans.append(Span(self.length, self.length, Style(link=address)))

    def pop(self) -> tuple[str, str]:
        """Closes the innermost style; returns the text under it and the address it was opened with."""
        first, part, start, address = self.open.pop()
        for index in range(first, first + (2 if address.startswith(_OPENABLE) else 1)):
            span = self.spans[index]
            assert span is not None
            self.spans[index] = Span(start, self.length, span.style) if self.length > start else None
        return "".join(self.parts[part:]), address

    def content(self) -> Content:
        return Content("".join(self.parts), [span for span in self.spans if span is not None])


def render_inline(tokens: Sequence[Token]) -> Content:
    """Content of a paragraph, heading or cell. Line ends in the source are kept as line ends."""
    writer = _Writer()
    _write(writer, tokens)
    return writer.content()


def _write(writer: _Writer, tokens: Sequence[Token]) -> None:
    for token in tokens:
        kind = token.type
        if kind == "text":
            writer.add(_shown(token.content))
        elif kind in ("softbreak", "hardbreak"):
            writer.add("\n")
        elif kind == "code_inline":
            writer.add(_shown(token.content), styles.CODE)
        elif kind == "math_inline":
            writer.add(_shown(token.content), styles.MATH)
        elif kind == "html_inline":
            if token.content.lower() in _LINE_BREAK_TAGS:
                writer.add("\n")
            else:
                writer.add(_shown(token.content), styles.HTML)
        elif kind == "image":
            writer.push(styles.LINK, clean(str(token.attrGet("src") or "")))
            _write(writer, token.children or ())
            _close_link(writer)
        elif kind == "link_open":
            writer.push(styles.LINK, clean(str(token.attrGet("href") or "")))
        elif kind == "link_close":
            _close_link(writer)
        elif token.nesting == 1:
            writer.push(_PAIRS.get(kind.removesuffix("_open"), ""))
        elif token.nesting == -1:
            writer.pop()
        else:
            writer.add(_shown(token.content))


def _shown(text: str) -> str:
    """Cleaned once more, for the parser decodes entities such as "&#x202e;"; tabs as the spaces they stand for."""
    return clean(text).replace("\t", " " * TAB_SIZE)


def _close_link(writer: _Writer) -> None:
    """The address follows the text unless it is the text: a terminal has no hover, and text can lie."""
    text, address = writer.pop()
    if not text:
        writer.add(address, styles.ADDRESS)
    elif address and address not in (text, f"mailto:{text}", f"http://{text}"):
        writer.add(f" ({address})", styles.ADDRESS)
