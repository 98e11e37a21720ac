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


@st.composite
def cut_documents(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A document, and its pieces in order."""
    source = draw(documents)
    cuts = sorted(draw(st.sets(st.integers(0, len(source)), max_size=40)))
    if draw(st.booleans()):
        cuts = list(range(len(source)))
    return source, [source[a:b] for a, b in zip([0, *cuts], [*cuts, len(source)], strict=True)]
