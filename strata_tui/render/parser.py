"""Markdown source to markdown-it tokens: the one parser, its options, and its guards against degenerate text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from strata_tui.render.math import formulas

MAX_NESTING: Final = 60
"""Depth at which markdown-it stops. It drops what lies deeper, so `too_deep` blocks are shown as plain text."""

# Finding a link's end looks at every later bracket: a model stuck on "[[[[..." would freeze the screen for seconds.
_MAX_BRACKETS: Final = 1000

_CELL_BORDER: Final = re.compile(r"(?<!\\)\|")
_CODE_SPAN: Final = re.compile(r"(?<!`)(`+)(?!`)[^`]*(?<!`)\1(?!`)")


@dataclass(frozen=True, slots=True)
class Node:
    """A block token and the tokens between it and its closing one (none for leaves such as fences)."""

    token: Token
    inner: list[Token]

    @property
    def first_line(self) -> int:
        return self.token.map[0] if self.token.map else 0

    @property
    def end_line(self) -> int:
        """One past the last line; markdown-it may count blank lines at the end."""
        return self.token.map[1] if self.token.map else 0

    @property
    def too_deep(self) -> bool:
        return any(token.level >= MAX_NESTING - 1 for token in self.inner)


def parse(source: str, references: dict[str, Any] | None = None) -> tuple[list[Node], dict[str, Any]]:
    """Top-level blocks of clean `source`, and the link references known at its end (`references` and its own)."""
    env: dict[str, Any] = {"references": dict(references or {})}
    # With a line end after the last line, for markdown-it may look at the character after a line that is indented less
    # than the block it is in.
    tokens = _markdown.parse(source if source.endswith("\n") else source + "\n", env)
    return list(nodes(tokens)), env["references"]


def nodes(tokens: list[Token]) -> Iterator[Node]:
    """The blocks of one level."""
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.nesting != 1:
            yield Node(token, [])
            index += 1
            continue
        end, depth = index + 1, 1
        while depth:
            depth += tokens[end].nesting
            end += 1
        yield Node(token, tokens[index + 1 : end - 1])
        index = end


def _parse_inline(state: StateCore) -> None:
    """markdown-it's own core rule, except that text with a flood of brackets stays as it is."""
    for token in state.tokens:
        if token.type != "inline":
            continue
        if token.children is None:
            token.children = []
        if token.content.count("[") > _MAX_BRACKETS:
            token.children.append(Token("text", "", 0, content=token.content))
        else:
            state.md.inline.parse(token.content, state.md, state.env, token.children)


def _keep_all_cells(state: StateCore) -> None:
    """Core rule between blocks and inlines: GFM drops the cells of a row beyond the head's, this puts them back."""
    lines = state.src.split("\n")
    row: Token | None = None
    cells: list[Token] = []
    for token in state.tokens:
        if token.type == "tr_open":
            row, cells = token, []
        elif token.type == "th_open":
            row = None
        elif token.type == "inline" and row is not None:
            cells.append(token)
        elif token.type == "tr_close" and row is not None and row.map:
            for cell, content in zip(cells, _split_row(lines[row.map[0]], len(cells)), strict=False):
                cell.content = content
            row = None


def _split_row(line: str, count: int) -> list[str]:
    """The cells of a row that has more than `count`; none if it has not."""
    columns = _columns(line)
    if len(columns) <= count:
        return []
    # Most often the bar of a code span, as in `a || b`, which should have been written "\\|".
    guarded = _columns(_CODE_SPAN.sub(lambda match: _CELL_BORDER.sub(r"\\|", match[0]), line))
    if len(guarded) == count:
        return guarded
    return [*columns[: count - 1], " | ".join(columns[count - 1 :])]


def _columns(line: str) -> list[str]:
    columns = [column.replace("\\|", "|").strip() for column in _CELL_BORDER.split(line)]
    if not columns[0].strip("> \t"):
        columns.pop(0)
    if columns and not columns[-1]:
        columns.pop()
    return columns


def _new_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING}).enable(["table", "strikethrough"])
    parser.use(formulas)
    parser.core.ruler.before("inline", "keep_all_cells", _keep_all_cells)
    parser.core.ruler.at("inline", _parse_inline)
    return parser


_markdown: Final = _new_parser()
