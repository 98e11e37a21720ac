"""Random documents and random ways to cut them, for the tests of streaming."""

from __future__ import annotations

from hypothesis import strategies as st

BLOCKS = (
    "# Heading with `code` and *emphasis*",
    "Setext heading\n---",
    "A paragraph with **bold *nested* text**, ~~struck~~ and `code`.\nIts second line.",
    "Hard break  \nafter it, and an entity: &amp; &#x202e; &nbsp;",
    'A [link](https://example.com/a "title"), a [reference][r], a [shortcut] and an ![image](i.png).',
    "[r]: https://example.com/r 'title'",
    "[shortcut]:\n<https://example.com/s>",
    "| a | b | 説明 |\n|:--|--:|:-:|\n| 1 | `x|y` | 日本語のテキスト |\n| one cell |\n| a | b | c | d | e |",
    "a | b\n--|--\n1 | **2**\nthe row without bars",
    "- one\n- two\n  - nested\n    1. deep\n- three",
    "1. loose\n\n   ```python\n   def f():\n       return '''x\n   y'''\n   ```\n\n2. list\n\n   second\n7) other list",
    "$a_1 * b_1 * c$ and \\(x_{1} * y*\\) for $5 or $6\n\\[\n  \\frac{*a*}{b}\n\\]\n$$ open",
    "* star\n+ plus\n- [ ] task\n- [x] done",
    "> quote *one*\n> - list\n>\n> > nested\nlazy line",
    "```python\ndef f(x):\n    '''doc\n    string'''\n    return [x]  # comment\n```",
    "~~~~ c title=x\nint main(void) { /* a\n``` b */ return 0; }\n~~~~~",
    "  ```\n  indented fence\n\ttab\n  ```",
    "```js\nhalf open `fence`\n\n",
    "```",
    "    indented code\n\n    more",
    "<div class='x'>\nraw *html*\n</div>",
    "inline <b>html</b>, <br> and <!-- comment -->",
    "<!-- an open comment\n\nwith *text*",
    "***",
    "中文段落,**粗体**和`代码`。 한국어 👩‍👩‍👧‍👦 👍🏽 e\u0301 \u202eevil\u202c",
    "a line with \x1b[31mcolour\x1b[0m, \x1b]0;title\x07, \x9b, \x00 and \r\n",
    "half *open `thing [and](",
    "| not | a table",
    "text\n===",
    "-",
    "1.",
)
NOISE = "ab 1\n\n-*_`~#>|[]()!<&\\:.=\t\r\x1b世\u200d👩"

documents = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(BLOCKS), st.text(NOISE, max_size=30)),
        st.sampled_from(("\n\n", "\n\n", "\n", "", "\n\n\n", "\n  ", "\n> ", "\n\n    ")),
    ),
    max_size=8,
).map(lambda parts: "".join(block + separator for block, separator in parts))


WORDS = (
    *(
        "a",
        "the",
        "of",
        "words",
        "1.",
        "2)",
        "-",
        "+",
        "*",
        "#",
        ">",
        "|",
        "x|y",
        "a | b",
        "=",
        "---",
        "日本語",
        "中文。",
    ),
    *(
        "👩‍👩‍👧‍👦",
        "e\u0301",
        "\u202e",
        "&amp;",
        "&#x202e;",
        "\\",
        "\\*",
        "`code`",
        "`` a`b ``",
        "`half",
        "*half",
        "**bold**",
    ),
    *(
        "_em_",
        "~~gone~~",
        "[x](y)",
        "[a b](<u v> 't')",
        "[r]",
        "[s][r]",
        "[t][]",
        "![i](p.png)",
        "[half](",
        "<b>",
        "</b>",
    ),
    *("<br>", "<https://e.org>", "https://e.org/a_b", "<!-- c -->", "<!-- open", "$x_1$", "$5", "\\(y\\)", "\t", "  "),
)
LANGUAGES = ("", "python", "c", "js", "php", "html", "json", "sh", "diff", "no-such-thing", "{.python}", "py a=`b`")
CODE = (
    *(
        "def f(x):",
        "    return '''open",
        "close'''",
        "x = [1, 2]  # why",
        "/* open",
        "close */",
        "<?php",
        "<b>html</b>",
    ),
    *(
        '{"a": [1, 2]}',
        "+ added",
        "- gone",
        "",
        "   ",
        "\tindented",
        "``",
        "~~",
        "   ```py",
        "# 日本語",
        "'",
        '"',
        "\\",
    ),
)
HTML = (
    *(
        "<div>\n*raw*\n</div>",
        "<div>\n\n*not raw*\n\n</div>",
        "<!-- a\n\nb -->",
        "<pre>\nx\n\ny</pre>",
        "<script>\nopen",
    ),
    *("<?php x ?>", "<x-y>\ntext", "<details>\n<summary>s</summary>\n\n- a\n\n</details>", "<!DOCTYPE html>"),
)

_lines = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
_paragraphs = st.lists(_lines, min_size=1, max_size=3).map(lambda lines: "\n".join(lines))


@st.composite
def _tables(draw: st.DrawFn) -> str:
    columns = draw(st.integers(1, 4))
    cell = st.lists(st.sampled_from(WORDS), max_size=2).map(" ".join)
    bars = draw(st.booleans())

    def row(cells: list[str]) -> str:
        return f"| {' | '.join(cells)} |" if bars else " | ".join(cells)

    rule = draw(st.lists(st.sampled_from(("-", "---", ":--", "--:", ":-:")), min_size=columns, max_size=columns))
    rows = draw(st.lists(st.lists(cell, min_size=max(1, columns - 1), max_size=columns + 1), max_size=4))
    head = draw(st.lists(cell, min_size=columns, max_size=columns))
    return "\n".join([row(head), row(rule), *map(row, rows)])


@st.composite
def _fences(draw: st.DrawFn) -> str:
    mark = draw(st.sampled_from(("```", "~~~", "````", "~~~~~")))
    indent = draw(st.sampled_from(("", "", " ", "   ")))
    lines = draw(st.lists(st.sampled_from(CODE), max_size=8))
    end = draw(st.sampled_from((mark, mark, mark + mark[0], "", mark[:2], mark + " x")))
    return "\n".join(indent + line for line in [mark + draw(st.sampled_from(LANGUAGES)), *lines, end])


def _indented(block: str, first: str, rest: str) -> str:
    lines = block.split("\n")
    return "\n".join([first + lines[0], *((rest + line) if line else line for line in lines[1:])])


def _containers(blocks: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    inside = st.lists(blocks, min_size=1, max_size=3)

    @st.composite
    def lists(draw: st.DrawFn) -> str:
        ordered, number = draw(st.booleans()), draw(st.integers(0, 12))
        sign = draw(st.sampled_from((".", ")"))) if ordered else draw(st.sampled_from("-*+"))
        between = draw(st.sampled_from(("\n", "\n", "\n\n")))
        items = []
        for place in range(draw(st.integers(1, 4))):
            marker = f"{number + place}{sign} " if ordered else f"{sign} "
            marker += draw(st.sampled_from(("", "", " ", "[ ] ", "[x] ")))
            body = draw(st.sampled_from(("\n", "\n\n"))).join(draw(inside))
            rest = draw(st.sampled_from((" " * len(marker), " " * len(marker), "  ", "")))
            items.append(_indented(body, marker, rest))
        return between.join(items)

    @st.composite
    def quotes(draw: st.DrawFn) -> str:
        body = "\n\n".join(draw(inside))
        return _indented(body, "> ", draw(st.sampled_from(("> ", "> ", ">", ""))))

    return st.one_of(lists(), quotes())


_leaves = st.one_of(
    _paragraphs,
    _paragraphs,
    _tables(),
    _fences(),
    st.builds(lambda level, text: f"{'#' * level} {text}", st.integers(1, 7), _lines),
    st.builds(lambda text, rule: f"{text}\n{rule}", _lines, st.sampled_from(("===", "---", "-", "= ="))),
    st.sampled_from(HTML),
    st.sampled_from(
        ("[r]: https://e.org/r 'title'", "[t]:\n/u\n'a\ntitle'", "[s]: <u v>", "[r]: ", "***", "- - -", "|")
    ),
    st.lists(st.sampled_from(CODE), min_size=1, max_size=3).map(lambda ls: "\n".join("    " + line for line in ls)),
)
structured = st.lists(
    st.tuples(
        st.recursive(_leaves, _containers, max_leaves=6), st.sampled_from(("\n\n", "\n\n", "\n", "\n\n\n", "\n> "))
    ),
    max_size=5,
).map(lambda parts: "".join(block + separator for block, separator in parts))


@st.composite
def half_open(draw: st.DrawFn) -> str:
    """A document that ends anywhere."""
    source = draw(structured)
    return source[: draw(st.integers(0, len(source)))] if draw(st.booleans()) else source


@st.composite
def cut_documents(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A document, and its pieces in order."""
    source = draw(st.one_of(documents, half_open()))
    cuts = sorted(draw(st.sets(st.integers(0, len(source)), max_size=40)))
    if draw(st.booleans()):
        cuts = list(range(len(source)))
    return source, [source[a:b] for a, b in zip([0, *cuts], [*cuts, len(source)], strict=True)]
