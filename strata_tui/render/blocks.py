"""Markdown to blocks of styled `Content`: pure functions of the text and the width."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from textual.content import Content

from strata_tui.render import styles
from strata_tui.render.code import code_block, highlight, language_of
from strata_tui.render.inline import render_inline
from strata_tui.render.layout import TAB_SIZE, inner_width, join_lines, prefixed, split_lines, wrap_lines
from strata_tui.render.parser import Node, nodes, parse
from strata_tui.render.table import render_table
from strata_tui.text import clean

BlockKind = Literal["heading", "paragraph", "list", "quote", "code", "table", "rule", "html"]

_KINDS: Final[dict[str, BlockKind]] = {
    "heading_open": "heading",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "blockquote_open": "quote",
    "fence": "code",
    "code_block": "code",
    "table_open": "table",
    "hr": "rule",
    "html_block": "html",
}
_BULLETS: Final = "•◦▪"
_QUOTE_BAR: Final = "▌ "
_RULE_WIDTH: Final = 40
_BLANK: Final = re.compile(r"[\s>]*\Z")


@dataclass(frozen=True)
class Block:
    """A top-level block of a message."""

    kind: BlockKind
    lines: tuple[Content, ...]
    source: str
    """The Markdown it came from."""
    language: str | None = None
    code: str | None = None
    """Of a code block: the code alone."""

    @cached_property
    def content(self) -> Content:
        return join_lines(self.lines)


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A piece of code in a message, wherever it is nested."""

    language: str | None
    code: str


def compile_markdown(source: str, width: int | None = None) -> list[Block]:
    """The blocks of `source`, in order. Control and escape characters are taken out.

    `width` is the room in terminal cells for what has to be laid out in columns: tables, rules, and lists, quotes and
    code, whose wrapped lines keep their indent. Paragraphs and headings stay one line, for the widget to wrap.
    """
    source = clean(source)
    found, _ = parse(source)
    return render_blocks(found, source.split("\n"), width)


def code_blocks(source: str) -> list[CodeBlock]:
    """All code of a message, in order, also out of lists and quotes: for copying."""
    found, _ = parse(clean(source))
    tokens = (token for node in found for token in (node.token, *node.inner))
    return [
        CodeBlock(language_of(token.info), token.content.removesuffix("\n"))
        for token in tokens
        if token.type in ("fence", "code_block")
    ]


def render_blocks(found: Iterable[Node], source: Sequence[str], width: int | None) -> list[Block]:
    """Blocks of top-level nodes; `source` is the lines that the nodes' line numbers refer to."""
    return [_block(node, source, width) for node in found]


def page_lines(blocks: Iterable[Block], *, first: bool = True) -> Iterator[Content]:
    """Lines of `blocks` under one another, apart by a blank line; `first`: nothing stands above them."""
    for block in blocks:
        if not first:
            yield Content()
        first = False
        yield from block.lines


def _block(node: Node, source: Sequence[str], width: int | None) -> Block:
    token = node.token
    own = list(source[node.first_line : node.end_line])
    while own and not own[-1].strip():
        own.pop()
    text = "\n".join(own)
    if node.too_deep:
        return Block("paragraph", tuple(Content(line.expandtabs(TAB_SIZE)) for line in own), text)
    lines = tuple(_Page(source, width).lines(node))
    kind = _KINDS.get(token.type, "paragraph")
    if kind == "code":
        return Block(kind, lines, text, language_of(token.info), token.content.removesuffix("\n"))
    return Block(kind, lines, text)


@dataclass(frozen=True, slots=True)
class _Page:
    """Where blocks are laid out: the source lines they refer to, and the width left for them."""

    source: Sequence[str]
    width: int | None
    nested: bool = False
    list_depth: int = 0

    def lines(self, node: Node) -> list[Content]:
        token = node.token
        match token.type:
            case "fence" | "code_block":
                language = language_of(token.info)
                code = highlight(token.content.removesuffix("\n"), language) if token.content else []
                return code_block(code, language, self.width)
            case "bullet_list_open" | "ordered_list_open":
                return list(self._list(node))
            case "blockquote_open":
                bar = Content.styled(_QUOTE_BAR, styles.QUOTE_BAR)
                inside = self._inside(len(_QUOTE_BAR)).stack(nodes(node.inner), spaced=True)
                return prefixed(inside or [Content()], bar, bar)
            case "table_open":
                return render_table(node, self.width)
            case "hr":
                return [Content.styled("─" * (self.width or _RULE_WIDTH), styles.RULE)]
            case "html_block":
                text = Content.styled(clean(token.content).rstrip("\n").expandtabs(TAB_SIZE), styles.HTML)
                return self._wrapped(text)
            case "heading_open":
                level = min(int(token.tag[1:]), len(styles.HEADING))
                return self._wrapped(self._inline(node).stylize_before(styles.HEADING[level - 1]))
            case _:
                return self._wrapped(self._inline(node))

    def stack(self, children: Iterable[Node], *, spaced: bool) -> list[Content]:
        """Blocks under one another, apart by a blank line: always if `spaced`, else where the source has one."""
        lines: list[Content] = []
        for child in children:
            if lines and (spaced or blank_before(self.source, child.first_line)):
                lines.append(Content())
            lines.extend(self.lines(child))
        return lines

    def _list(self, node: Node) -> Iterator[Content]:
        # Spacing is taken from the source item by item. By the letter of CommonMark one blank line makes a whole list
        # loose; then the last item to arrive would move all lines above it.
        number = node.token.attrGet("start")
        ordinal = 1 if number is None else int(number)
        for index, item in enumerate(nodes(node.inner)):
            if index and blank_before(self.source, item.first_line):
                yield Content()
            if node.token.type == "ordered_list_open":
                marker = f"{ordinal + index}{item.token.markup} "
            else:
                marker = f"{_BULLETS[self.list_depth % len(_BULLETS)]} "
            inside = self._inside(len(marker), in_list=True).stack(nodes(item.inner), spaced=False)
            indent = " " * len(marker)
            yield Content.styled(marker, styles.MARKER) + (inside[0] if inside else "")
            for line in inside[1:]:
                yield line.pad_left(len(indent)) if line else line

    def _inside(self, taken: int, *, in_list: bool = False) -> _Page:
        return _Page(self.source, inner_width(self.width, taken), True, self.list_depth + in_list)

    def _inline(self, node: Node) -> Content:
        inline = node.inner[0] if node.inner else None
        return render_inline(inline.children or ()) if inline else Content()

    def _wrapped(self, content: Content) -> list[Content]:
        lines = split_lines(content)
        return wrap_lines(lines, self.width) if self.nested else lines


def blank_before(source: Sequence[str], line: int) -> bool:
    """Whether the line above `line` is blank; bars of quotes do not count."""
    return line > 0 and _BLANK.match(source[line - 1]) is not None
