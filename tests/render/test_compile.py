from __future__ import annotations

import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.content import Content
from textual.style import Style
from textual.widgets import Static

from strata_tui.render import code_blocks, compile_chunks, compile_markdown
from strata_tui.render.chunks import CHUNK_CHARS, CHUNK_LINES

from .documents import BLOCKS, documents


def plain(source: str, width: int | None = None) -> str:
    return "\n\n".join(block.content.plain for block in compile_markdown(source, width))


def styled(content: Content) -> dict[str, str]:
    """Style by styled text; later spans win."""
    return {content.plain[span.start : span.end]: str(span.style) for span in content.spans}


def test_blocks_in_order() -> None:
    source = "# One\n\ntext\n\n- item\n\n> quote\n\n```c\nint x;\n```\n\n| a |\n|---|\n| 1 |\n\n***\n\n<p>\n"
    blocks = compile_markdown(source)
    assert [block.kind for block in blocks] == [
        "heading", "paragraph", "list", "quote", "code", "table", "rule", "html"
    ]  # fmt: skip
    assert [block.source for block in blocks] == source.rstrip("\n").split("\n\n")
    assert (blocks[4].language, blocks[4].code) == ("c", "int x;")
    assert blocks[1].language is None and blocks[1].code is None


def test_inline_styles() -> None:
    content = compile_markdown("a *em* **strong** ***both*** `code` ~~struck~~ <b>")[0].content
    assert content.plain == "a em strong both code struck <b>"
    styles = styled(content)
    assert styles["em"] == "italic"
    assert styles["strong"] == "bold"
    assert styles["code"] == "$text-warning"
    assert styles["struck"] == "strike"
    assert {str(span.style) for span in content.spans if content.plain[span.start : span.end] == "both"} == {
        "italic",
        "bold",
    }


def test_inner_style_comes_after_outer() -> None:
    # Textual lets later spans win: inline code in a link must look like code.
    content = compile_markdown("[see `x` there](https://example.com)")[0].content
    order = [content.plain[span.start : span.end] for span in content.spans if isinstance(span.style, str)]
    assert order.index("see x there") < order.index("x")


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("[text](https://example.com/a)", "text (https://example.com/a)"),
        ("<https://example.com/a>", "https://example.com/a"),
        ("<me@example.com>", "me@example.com"),
        ("[](https://example.com)", "https://example.com"),
        ("![alt *text*](image.png)", "alt text (image.png)"),
        ("[ref][r]\n\n[r]: <https://example.com> 'title'", "ref (https://example.com)"),
        ("[javascript](javascript:alert(1))", "[javascript](javascript:alert(1))"),
        ("[half](https://exam", "[half](https://exam"),
    ],
)
def test_links_show_where_they_lead(source: str, shown: str) -> None:
    assert plain(source) == shown


def test_web_links_can_be_opened() -> None:
    spans = compile_markdown("[text](https://example.com) [other](#anchor)")[0].content.spans
    assert [span.style.link for span in spans if isinstance(span.style, Style)] == ["https://example.com"]


def test_line_ends_and_breaks_are_kept() -> None:
    assert plain("one\ntwo  \nthree\\\nfour<br>five") == "one\ntwo\nthree\nfour\nfive"


def test_lists() -> None:
    source = "3. three\n3. four\n   - nested\n     * deeper\n\n   paragraph\n9. five\n\n10. six"
    assert plain(source) == "3. three\n4. four\n   ◦ nested\n     ▪ deeper\n\n   paragraph\n5. five\n\n6. six"
    assert plain("2) a\n3) b") == "2) a\n3) b"
    assert plain("- a\n-\n- c") == "• a\n• \n• c"


def test_wrapped_lines_keep_their_indent() -> None:
    assert plain("- one two three four five\n  > six seven eight nine", 16) == (
        "• one two three\n  four five\n  ▌ six seven\n  ▌ eight nine"
    )


def test_quotes() -> None:
    assert plain("> one\n> two\n>\n> > deep\n>\n> - item") == "▌ one\n▌ two\n▌ \n▌ ▌ deep\n▌ \n▌ • item"


def test_code() -> None:
    block = compile_markdown("```python title=x\ndef f():\n\treturn 1 # why\n```")[0]
    assert block.content.plain == "▏ python\n▏ def f():\n▏     return 1 # why"
    assert block.code == "def f():\n\treturn 1 # why"
    styles = styled(block.content)
    assert styles["def"] == styles["return"] == "bold $text-accent"
    assert styles["# why"] == "$muted italic"
    assert plain("```nonsuch-language\nx\n```") == "▏ nonsuch-language\n▏ x"
    assert plain("```\nhalf open") == "▏ half open"
    assert plain("    indented\n\n      more") == "▏ indented\n▏\x20\n▏   more"
    assert plain("```\n```") == "▏ "
    assert plain("```\n0123456789\n```", 8) == "▏ 012345\n▏ 6789"


def test_code_with_line_separators_keeps_its_lines() -> None:
    block = compile_markdown("```python\na = 'x\u2028y\x0cz'\nb = 1\n```")[0]
    assert block.content.plain == "▏ python\n▏ a = 'x\n▏ y z'\n▏ b = 1".replace(" z", "z")


def test_code_blocks_for_copying() -> None:
    source = "```py\na\n```\n\n- x\n\n  ~~~\n  b\n  c\n  ~~~\n\n> ```sh\n> d\n> ```\n\n    e"
    assert [(block.language, block.code) for block in code_blocks(source)] == [
        ("py", "a"),
        (None, "b\nc"),
        ("sh", "d"),
        (None, "e"),
    ]


@pytest.mark.parametrize(
    "formula", [r"\(a_1 * b * c\)", "\\[\n\\frac{*a*}{b}\n\\]", "$a*b*c$", "$$x^*_1 *\n y*$$", r"$\$5$"]
)
def test_formulas_are_kept(formula: str) -> None:
    content = compile_markdown(f"so {formula} *holds*")[0].content
    assert content.plain == f"so {formula} holds"
    assert styled(content) == dict.fromkeys(formula.split("\n"), "italic $text-secondary") | {"holds": "italic"}


def test_prices_are_no_formulas() -> None:
    assert plain("$5 or *$6*, $7/$8, a $ b *c* $ d") == "$5 or $6, $7/$8, a $ b c $ d"


def test_html_is_text() -> None:
    assert plain("<div onclick='x'>\n*raw*\n</div>\n\ninline <b>*it*</b> <!-- c -->") == (
        "<div onclick='x'>\n*raw*\n</div>\n\ninline <b>it</b> <!-- c -->"
    )


def test_content_is_never_made_from_markup() -> None:
    source = (
        "[bold]x[/bold] [@click=app.quit]y[/] `[red]`\n\n```\n[link='http://x']z[/link]\n```\n\n| [b]c[/b] |\n|---|"
    )
    blocks = compile_markdown(source)
    assert blocks[0].content.plain == "[bold]x[/bold] [@click=app.quit]y[/] [red]"
    assert blocks[1].content.plain == "▏ [link='http://x']z[/link]"
    assert blocks[2].content.plain.startswith("[b]c[/b]")
    assert all(isinstance(span.style, str) for block in blocks for span in block.content.spans)


def test_control_characters_from_entities_do_not_come_through() -> None:
    text = plain("&#x202e; &#27;[31m &#155; [x](<http://a/&#x202e;b>) `\x1b[1m`\n\n| &#10;&#x2066; |\n|---|")
    assert not [char for char in text if char != "\n" and unicodedata.category(char) in ("Cc", "Cs")]
    assert not set(text) & set("\u202e\u2066")


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(documents, st.sampled_from((None, 10, 40)))
def test_output_is_clean_and_well_formed(source: str, width: int | None) -> None:
    for block in compile_markdown(source, width):
        text = block.content.plain
        assert all(char == "\n" or unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp") for char in text)
        assert "\u202e" not in text
        assert all(0 <= span.start < span.end <= len(text) for span in block.content.spans)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(documents, st.integers(24, 100))
def test_laid_out_blocks_fit_the_width(source: str, width: int) -> None:
    for block in compile_markdown(source, width):
        if block.kind in ("table", "list", "quote", "code", "rule"):
            assert all(cell_len(line) <= width for line in block.content.plain.split("\n")), block


def letters(text: str) -> list[str]:
    return [char for char in text if char.isalnum()]


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from([b for b in BLOCKS if "&" not in b and "]" not in b and "\x1b" not in b]), max_size=6),
    st.sampled_from((None, 12, 60)),
)
def test_no_word_is_lost(parts: list[str], width: int | None) -> None:
    # Numbers of lists, the words of fences' info strings and <br> tags are the only letters that may differ.
    source = "\n\n".join(parts)
    missing = letters(source)
    for char in letters(plain(source, width)):
        if char in missing:
            missing.remove(char)
    assert not set(missing) - set("0123456789ctitlexbr"), missing


@pytest.mark.parametrize(
    "unit", [">", "> ", "1. ", "- a\n ", "[", "![", "[a](", "*a **b ", "`", "~~a", "|a", "<a ", "\\", "&", "\\(", "$a "]
)
def test_degenerate_text_is_shown_whole(unit: str) -> None:
    source = unit * 3_000
    text = plain(source, 80)
    if unit in (">", "> ", "1. ", "[", "![", "[a]("):
        assert text.replace("\n", "").count(unit[0]) == 3_000
    assert text


def test_a_flood_of_brackets_is_not_searched_for_links() -> None:
    # markdown-it looks for a link's end from each of them: minutes, for a model that is stuck.
    source = "[a](b) " * 1_001
    assert plain(source) == source.rstrip()


def test_deep_lists() -> None:
    source = "\n".join("  " * depth + "- level" for depth in range(80))
    assert plain(source, 40).count("level") == 80


def test_chunks_are_the_blocks() -> None:
    source = "\n\n".join(
        ["para *graph* " * 9] * 90 + ["```python\n" + "x = 1\n" * 200 + "```", "| a |\n|---|", "- i\n- j"]
    )
    blocks = compile_markdown(source, 80)
    chunks = compile_chunks(source, 80)
    assert Content("\n").join(chunks).is_same(Content("\n\n").join(block.content for block in blocks))
    assert all(chunk.plain.count("\n") < CHUNK_LINES and len(chunk) <= CHUNK_CHARS for chunk in chunks)
    assert len(chunks) > 5
    assert all(chunk.plain.strip() for chunk in chunks)


def test_a_blank_line_is_no_chunk() -> None:
    long = "x" * (CHUNK_CHARS + 1)
    assert [chunk.plain for chunk in compile_chunks(f"one\n\n{long}\n\n{long}")] == ["one", f"\n{long}", f"\n{long}"]
    full = "\n".join("x" * CHUNK_LINES)
    assert [chunk.plain for chunk in compile_chunks(f"{full}\n\n{long}")] == [full, f"\n{long}"]


class Page(App[None]):
    def __init__(self, chunks: list[Content]) -> None:
        super().__init__()
        self.page = chunks

    def compose(self) -> ComposeResult:
        for chunk in self.page:
            yield Static(chunk)


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light", "ansi-dark", "ansi-light"])
async def test_drawn_by_textual(theme: str) -> None:
    source = "\n\n".join(BLOCKS)
    app = Page(compile_chunks(source, 60))
    app.theme = theme
    async with app.run_test(size=(60, 300)) as pilot:
        await pilot.pause()
        rows = [
            "".join(segment.text for segment in widget.render_line(row)).rstrip()
            for widget in app.query(Static)
            for row in range(widget.size.height)
        ]
        # What was laid out for this width is not broken again.
        laid_out = [
            line.rstrip()
            for block in compile_markdown(source, 60)
            if block.kind in ("table", "list", "quote", "code")
            for line in block.content.plain.split("\n")
        ]
        position = 0
        for line in laid_out:
            position = rows.index(line, position) + 1
