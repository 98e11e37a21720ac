"""Model text to Textual `Content`: pure functions, and the same in pieces while a reply is written."""

from __future__ import annotations

from strata_tui.render.blocks import Block, BlockKind, CodeBlock, code_blocks, compile_markdown
from strata_tui.render.chunks import compile_chunks
from strata_tui.render.stream import StreamingMarkdown, Update
from strata_tui.text import clean

__all__ = [
    "Block",
    "BlockKind",
    "CodeBlock",
    "StreamingMarkdown",
    "Update",
    "clean",
    "code_blocks",
    "compile_chunks",
    "compile_markdown",
]
