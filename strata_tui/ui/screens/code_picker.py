"""Which code block of a message to copy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Key
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ...render import CodeBlock
from ...text import clean_line
from ..actions import Where, bindings
from ..widgets.rows import Rows
from .list_screen import ListScreen


class CodePicker(ListScreen[CodeBlock | None]):
    """A list of code blocks; enter, or a digit, chooses."""

    CSS_PATH: ClassVar[list[str | PurePath]] = ["code_picker.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.PAGES), *bindings(Where.LISTS)]

    def __init__(self, blocks: Sequence[CodeBlock]) -> None:
        super().__init__()
        self._blocks = blocks

    def compose(self) -> ComposeResult:
        with Vertical(classes="section page", id="code-blocks") as box:
            box.border_title = "Copy which code block?"
            box.border_subtitle = "enter or its number copies, esc closes"
            yield Rows(*(Option(block_text(n, b)) for n, b in enumerate(self._blocks, 1)))

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._blocks[event.option_index])

    def on_key(self, event: Key) -> None:
        """A digit is the block of that number."""
        if event.key.isascii() and event.key.isdigit() and 1 <= int(event.key) <= len(self._blocks):
            event.stop()
            self.dismiss(self._blocks[int(event.key) - 1])

    def tell(self, text: str, error: bool = False) -> None:
        self.query_one("#code-blocks").border_subtitle = Content(text)


def block_text(number: int, block: CodeBlock) -> Content:
    """One line: number, language, lines, and how it begins."""
    lines = block.code.split("\n")
    begin = next((clean_line(line) for line in lines if line.strip()), "")
    count = f"{len(lines)} line{'s' if len(lines) > 1 else ''}"
    return Content.assemble(
        f"{number:>2}  ",
        (f"{clean_line(block.language or 'text'):<10} ", "$accent"),
        f"{count:<10} ",
        (begin, "$secondary"),
    )
