"""Styles of rendered text.

Only theme variables, ANSI-safe attributes and no backgrounds: Textual resolves the variables when it paints, so a
change of theme needs no second compile, and nothing turns unreadable in the terminal's own sixteen colours.
"""

from __future__ import annotations

from typing import Any, Final

from pygments.token import Token  # type: ignore[import-untyped]

HEADING: Final = ("bold underline $text-primary", "bold $text-primary", "bold $text-secondary", "bold")
"""Heading levels 1, 2, 3, and 4 to 6."""
STRONG: Final = "bold"
EMPHASIS: Final = "italic"
STRIKE: Final = "strike"
CODE: Final = "$text-warning"
MATH: Final = "italic $text-secondary"
LINK: Final = "underline $text-accent"
ADDRESS: Final = "$muted"
"""A link's address, shown after its text."""
HTML: Final = "$muted"
MARKER: Final = "$text-accent"
"""Bullets and numbers of lists."""
QUOTE_BAR: Final = "$text-secondary"
CODE_BAR: Final = "$muted"
LANGUAGE: Final = "$muted italic"
RULE: Final = "$muted"
TABLE_HEAD: Final = "bold"
TABLE_LINE: Final = "$muted"

_TOKENS: Final[dict[Any, str]] = {
    Token.Comment: "$muted italic",
    Token.Comment.Preproc: "$text-secondary",
    Token.Error: "$text-error",
    Token.Generic.Deleted: "$text-error",
    Token.Generic.Emph: "italic",
    Token.Generic.Error: "$text-error",
    Token.Generic.Heading: "bold $text-primary",
    Token.Generic.Inserted: "$text-success",
    Token.Generic.Prompt: "$muted",
    Token.Generic.Strong: "bold",
    Token.Generic.Subheading: "$text-primary",
    Token.Keyword: "bold $text-accent",
    Token.Keyword.Constant: "$text-warning",
    Token.Keyword.Type: "$text-secondary",
    Token.Name.Attribute: "$text-primary",
    Token.Name.Builtin: "$text-secondary",
    Token.Name.Class: "bold $text-primary",
    Token.Name.Decorator: "$text-primary",
    Token.Name.Function: "$text-primary",
    Token.Name.Namespace: "$text-primary",
    Token.Name.Tag: "bold $text-primary",
    Token.Literal.Number: "$text-warning",
    Token.Literal.String: "$text-success",
    Token.Literal.String.Doc: "italic $text-success",
    Token.Operator.Word: "bold $text-accent",
}
_resolved: dict[Any, str] = {}


def token_style(kind: Any) -> str:
    """The style of a Pygments token: its own or that of its nearest ancestor; "" for plain text."""
    style = _resolved.get(kind)
    if style is None:
        nearest = kind
        while nearest is not None and nearest not in _TOKENS:
            nearest = nearest.parent
        style = _resolved[kind] = "" if nearest is None else _TOKENS[nearest]
    return style
