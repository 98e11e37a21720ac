"""The end of a growing message: which of its lines are settled, and how the rest looks so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from textual.content import Content

from strata_tui.render.blocks import blank_before, page_lines, render_blocks
from strata_tui.render.code import code_block, code_lines, language_of
from strata_tui.render.fence import OpenFence
from strata_tui.render.parser import Node, nodes, parse


@dataclass(frozen=True, slots=True)
class _Above:
    """What the settled lines leave behind for those that follow."""

    blank_line: bool = False
    """Whether a blank line comes between them."""
    ordinal: int | None = None
    """The number of the list item that comes next, if the settled lines end inside a list."""


class Tail:
    """Takes clean text, gives lines. What comes before the last top-level block is settled; of a list, what comes
    before its last item; of a fence, see fence.py.

    CommonMark reads line by line and never opens a closed block again, so a block's start is certain once the lines
    that made it one are complete: its first line, and for a table its second.
    """

    def __init__(self, width: int | None) -> None:
        self.text = ""
        """What is not settled yet."""
        self.compiled_chars = 0
        """Characters parsed or highlighted so far."""
        self._width = width
        self._above = _Above()
        self._references: dict[str, Any] = {}
        self._fence: OpenFence | None = None

    def add(self, text: str) -> None:
        self.text += text

    def advance(self) -> tuple[list[Content], list[Content]]:
        """The lines that are settled since the last call, and all lines after those: they may still change."""
        settled: list[Content] = []
        while True:
            if self._fence is not None:
                still_open = self._read_fence(self._fence, settled)
                if still_open is not None:
                    return settled, still_open
            self.compiled_chars += len(self.text)
            found, references = parse(self.text, self._references)
            source = self.text.split("\n")
            if found and self._above.ordinal is not None:
                found[0].token.attrSet("start", self._above.ordinal)
            done, still, inside_list = _divide(found, source)
            settled += self._render(done, source)
            # The last block; if its closing line is there too, the fence closes as soon as it is read.
            fence = len(still) == 1 and still[0].token.type == "fence" and _certain(still[0].first_line, source)
            if done:
                self._above = _above(still[0], inside_list, source)
            if done or fence:
                self._cut(still[0].first_line, source, references)
            if not fence:
                return settled, self._render(still, source)
            settled += self._open_fence(still[0])

    def _render(self, found: Sequence[Node], source: Sequence[str]) -> list[Content]:
        return list(page_lines(render_blocks(found, source, self._width), first=not self._above.blank_line))

    def _cut(self, line: int, source: Sequence[str], references: Mapping[str, Any]) -> None:
        """Lets go of the lines above `line`, and keeps the link references that they defined."""
        for label, reference in references.items():
            if label not in self._references and reference["map"][1] <= line:
                self._references[label] = reference
        self.text = "\n".join(source[line:])

    def _open_fence(self, node: Node) -> list[Content]:
        """From here on the tail is inside a fence. Returns the lines that head it."""
        opening, _, self.text = self.text.partition("\n")
        language = language_of(node.token.info)
        self._fence = OpenFence(opening, node.token.markup, language)
        lines = [Content()] if self._above.blank_line else []
        self._above = _Above(blank_line=True)
        return lines + (code_block([], language, self._width) if language else [])

    def _read_fence(self, fence: OpenFence, settled: list[Content]) -> list[Content] | None:
        """Moves complete lines into the fence; returns its unsettled lines, or None if it closed."""
        before = fence.highlighted_chars
        *complete, partial = self.text.split("\n")
        lines: list[Content] = []
        taken = 0
        for line in complete:
            lines += fence.add_line(line)
            taken += len(line) + 1
            if fence.closed:
                break
        self.text = self.text[taken:]
        still_open = None if fence.closed else fence.unsettled(partial)
        self.compiled_chars += fence.highlighted_chars - before
        if fence.closed:
            self._fence = None
        if fence.empty and not fence.language:
            # Nothing to show but the bar.
            settled += code_block([], None, self._width) if fence.closed else []
            return None if still_open is None else code_block(still_open, None, self._width)
        settled += code_lines(lines, self._width)
        return None if still_open is None else code_lines(still_open, self._width)


def _above(node: Node, inside_list: bool, source: Sequence[str]) -> _Above:
    """What is above `node` once the lines before it are settled."""
    if inside_list:
        return _Above(blank_before(source, node.first_line), _ordinal(node))
    return _Above(blank_line=True)


def _divide(found: list[Node], source: Sequence[str]) -> tuple[list[Node], list[Node], bool]:
    """Blocks that are done, blocks that are still open, and whether the cut goes through a list."""
    last = max(len(found) - 1, 0)
    while last and not _certain(found[last].first_line, source):
        last -= 1
    done, still = found[:last], found[last:]
    if still and still[0].token.type in ("bullet_list_open", "ordered_list_open"):
        items = [item.first_line for item in nodes(still[0].inner) if _certain(item.first_line, source)]
        # Read on its own, an item with a bar could be the head of a table.
        if len(items) > 1 and "|" not in source[items[-1]]:
            head, rest = _split_list(still[0], items[-1], len(items) - 1)
            return [*done, head], [rest, *still[1:]], True
    return done, still, False


def _split_list(node: Node, line: int, count: int) -> tuple[Node, Node]:
    """The first `count` items of a list, and the list from the item at `line` on."""
    at = next(
        index
        for index, token in enumerate(node.inner)
        if token.type == "list_item_open" and token.level == node.token.level + 1 and token.map and token.map[0] == line
    )
    rest = node.token.copy(map=[line, node.end_line], attrs=dict(node.token.attrs))
    if (ordinal := _ordinal(node)) is not None:
        rest.attrSet("start", ordinal + count)
    return Node(node.token.copy(map=[node.first_line, line]), node.inner[:at]), Node(rest, node.inner[at:])


def _ordinal(node: Node) -> int | None:
    """The number of the first item of an ordered list."""
    if node.token.type != "ordered_list_open":
        return None
    start = node.token.attrGet("start")
    return 1 if start is None else int(start)


def _certain(line: int, source: Sequence[str]) -> bool:
    """Whether nothing to come can change what begins at `line`. The last line of `source` is not complete."""
    needed = 2 if "|" in source[line] else 1
    return line + needed < len(source)
