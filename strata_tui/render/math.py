"""TeX formulas, kept as they were written: Markdown would read "\\(a_1\\)" as an escape, and "*" as emphasis."""

from __future__ import annotations

import re
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline

# A single dollar opens only before, and closes only after, something other than a space, and never before a digit:
# prices stay prices. Lengths are bounded, for an opening sign without its partner is looked up again and again.
_FORMULA: Final = re.compile(
    r"\\\(.{1,500}?\\\)"
    r"|\\\[.{1,2000}?\\\]"
    r"|\$\$[^$]{1,2000}\$\$"
    r"|\$(?![\s$])(?:[^$`\\\n]|\\[^\n]){1,500}(?<!\s)\$(?!\d)",
    re.DOTALL,
)


def formulas(parser: MarkdownIt) -> None:
    """Plugin: a formula in running text becomes a `math_inline` token, delimiters included."""
    parser.inline.ruler.before("escape", "math", _math)


def _math(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in "\\$":
        return False
    match = _FORMULA.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        state.push("math_inline", "math", 0).content = match[0]
    state.pos = match.end()
    return True
