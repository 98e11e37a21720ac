"""A reply's markdown as HTML that cannot do anything: no raw HTML, no images, only links that are plain to see."""

from __future__ import annotations

from functools import lru_cache
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from pygments import highlight  # type: ignore[import-untyped]
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.util import ClassNotFound  # type: ignore[import-untyped]

_MAX_NESTING = 60  # markdown-it drops what lies deeper
_MAX_BRACKETS = 1000  # finding a link's end looks at every later bracket
_MAX_CODE = 200_000
_LINKS = ("http://", "https://", "mailto:")
_LIGHT, _DARK = "default", "github-dark"


def to_markup(text: str) -> str:
    """Clean markdown as HTML; text that nests too deeply for the parser stays as it was written."""
    parser = _parser()
    env: dict[str, Any] = {}
    tokens = parser.parse(text, env)
    if any(token.level >= _MAX_NESTING - 1 for token in tokens):
        return f'<div class="plain">{escape(text)}</div>'
    return str(parser.renderer.render(tokens, parser.options, env))


def code_styles() -> str:
    """CSS for highlighted code, light and dark."""
    light, dark = (_formatter(style).get_style_defs("pre") for style in (_LIGHT, _DARK))
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\npre .err {{ border: 0 }}\n"


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    options = {"html": False, "maxNesting": _MAX_NESTING, "highlight": _highlighted}
    parser = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    parser.validateLink = lambda url: url.strip().lower().startswith(_LINKS)  # type: ignore[method-assign]
    parser.core.ruler.at("inline", _parse_inline)
    parser.add_render_rule("image", _image)
    parser.add_render_rule("link_open", _link)
    return parser


def _parse_inline(state: StateCore) -> None:
    for token in state.tokens:
        if token.type == "inline":
            token.children = token.children or []
            if token.content.count("[") > _MAX_BRACKETS:
                token.children.append(Token("text", "", 0, content=token.content))
            else:
                state.md.inline.parse(token.content, state.md, state.env, token.children)


def _image(self: Any, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    """A link: an image would be loaded from elsewhere by whoever opens the page."""
    token = tokens[index]
    name = self.renderInlineAsText(token.children or [], options, env) or "image"
    return f'<a href="{escape(str(token.attrGet("src")))}" rel="noreferrer">{escape(name)}</a>'


def _link(self: Any, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    tokens[index].attrSet("rel", "noreferrer")
    return str(self.renderToken(tokens, index, options, env))


def _highlighted(code: str, language: str, _: str) -> str:
    """Code with classes; empty (markdown-it escapes it then) where the language is unknown."""
    if not language or len(code) > _MAX_CODE:
        return ""
    try:
        lexer = get_lexer_by_name(language.lower(), stripnl=False)
    except ClassNotFound:
        return ""
    return str(highlight(code, lexer, _formatter(_LIGHT)))


def _formatter(style: str) -> Any:
    return HtmlFormatter(nowrap=True, nobackground=True, style=style)
