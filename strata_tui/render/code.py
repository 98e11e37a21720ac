"""Code to highlighted lines, with Pygments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.util import ClassNotFound  # type: ignore[import-untyped]
from textual.content import Content, Span

from strata_tui.render import styles
from strata_tui.render.layout import TAB_SIZE, cut_offsets, prefixed
from strata_tui.text import clean_line

_BAR: Final = "▏ "
# Lexers are regular expressions; a minified line or a huge dump is not worth their time.
_MAX_CODE: Final = 200_000
_MAX_LINE: Final = 1_000


def language_of(info: str) -> str | None:
    """The language in a fence's info string: "python", "{.python}" and "python title=x" all mean "python"."""
    words = info.strip().strip("{}").split()
    return words[0].lstrip(".") or None if words else None


def highlight(code: str, language: str | None) -> list[Content]:
    """One `Content` a line of `code`, without line ends. An unknown language is plain text."""
    return list(_highlight(code, language))


def code_block(lines: Sequence[Content], language: str | None, width: int | None) -> list[Content]:
    """Highlighted lines behind a bar, headed by the language. Never empty: no code at all is a bar alone."""
    head = [Content.styled(clean_line(language), styles.LANGUAGE)] if language else []
    return code_lines([*head, *lines] or [Content()], width)


def code_lines(lines: Sequence[Content], width: int | None) -> list[Content]:
    """`lines` behind the bar; those longer than `width` cells go on in the next line."""
    if width is not None:
        room = max(2, width - len(_BAR))
        lines = [piece for line in lines for piece in line.divide(cut_offsets(line.plain, room))]
    bar = Content.styled(_BAR, styles.CODE_BAR)
    return prefixed(lines, bar, bar)


# A fence inside an open list is rendered again with every update of the list; most of the time it has not changed.
@lru_cache(maxsize=64)
def _highlight(code: str, language: str | None) -> tuple[Content, ...]:
    lines = [line.expandtabs(TAB_SIZE) for line in code.split("\n")]
    lexer = _lexer(language) if language else None
    if lexer is None or len(code) > _MAX_CODE or any(len(line) > _MAX_LINE for line in lines):
        return tuple(Content(line) for line in lines)
    spans: list[list[Span]] = [[] for _ in lines]
    number = column = 0
    for kind, value in lexer.get_tokens("\n".join(lines)):
        style = styles.token_style(kind)
        for index, piece in enumerate(value.split("\n")):
            if index:
                number, column = number + 1, 0
            if piece and style and number < len(lines):
                spans[number].append(Span(column, column + len(piece), style))
            column += len(piece)
    return tuple(Content(line, styled) for line, styled in zip(lines, spans, strict=True))


@lru_cache(maxsize=64)
def _lexer(language: str) -> Any:
    try:
        # ensurenl: many lexers need the last line end; it is ignored above. stripnl would shift line numbers.
        return get_lexer_by_name(language.lower(), stripnl=False, ensurenl=True)
    except ClassNotFound:
        return None
