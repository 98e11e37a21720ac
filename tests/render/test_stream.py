from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from textual.content import Content

from strata_tui.render import StreamingMarkdown, Update, compile_chunks
from strata_tui.render.chunks import CHUNK_CHARS, CHUNK_LINES

from .documents import cut_documents

widths = st.sampled_from((None, 12, 40, 100))


class Screen:
    """What a user interface does with updates: it knows chunks only from them."""

    def __init__(self) -> None:
        self.chunks: list[Content] = []

    def apply(self, update: Update) -> None:
        del self.chunks[update.count :]
        for index, content in sorted(update.changed.items()):
            if index == len(self.chunks):
                self.chunks.append(content)
            else:
                self.chunks[index] = content
        assert len(self.chunks) == update.count


def same(these: list[Content], those: list[Content]) -> bool:
    return len(these) == len(those) and all(one.is_same(other) for one, other in zip(these, those, strict=True))


def stream(pieces: list[str], width: int | None) -> tuple[StreamingMarkdown, Screen]:
    message, screen = StreamingMarkdown(width), Screen()
    for piece in pieces:
        screen.apply(message.feed(piece))
        assert same(screen.chunks, message.chunks)
    return message, screen


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(cut_documents(), widths)
def test_ends_equal_to_one_shot(cut: tuple[str, list[str]], width: int | None) -> None:
    source, pieces = cut
    message, screen = stream(pieces, width)
    screen.apply(message.finish())
    whole = compile_chunks(source, width)
    assert same(screen.chunks, whole)
    assert same(message.chunks, whole)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(cut_documents(), widths)
def test_is_right_on_the_way_too(cut: tuple[str, list[str]], width: int | None) -> None:
    # Without reference definitions nothing later can change what is settled: once the source ends with a line end,
    # the picture is that of the whole so far. The final compile therefore has nothing to repair.
    source, pieces = cut
    source, pieces = source + "\n", [*pieces, "\n"]
    if "]:" in source:
        return
    message, screen = stream(pieces, width)
    assert same(screen.chunks, compile_chunks(source, width))
    assert message.finish().changed == {}


@pytest.mark.parametrize(
    "lines",
    [
        # A table is known by its second line; until then its head looks like something else.
        ["```a | b", "--|--", "1 | 2", "", "```"],
        ["text", "", "~~~ | x", "|---|---|", "| 1 | 2 |"],
        # Inside a list it is no head of a table, for the second line is not in the item.
        ["- one", "- two | b", "--|--", "1 | 2", "- three"],
        ["text", "", "1. one", "2. two", "   - deep", "", "1. three", "9) other"],
    ],
)
def test_what_looks_like_another_block_at_first(lines: list[str]) -> None:
    message = StreamingMarkdown()
    for count, line in enumerate(lines, 1):
        for char in line + "\n":
            message.feed(char)
        assert same(message.chunks, compile_chunks("\n".join(lines[:count]) + "\n"))


LONG = "\n".join(
    f"def function_{number}(argument):\n    '''Text {number}.'''\n    return argument + {number}  # {number}"
    for number in range(100)
)


@pytest.mark.parametrize("step", [3, 500])
def test_long_fence(step: int) -> None:
    source = f"Before:\n\n```python\n{LONG}\n```\n\nAfter."
    message, screen = stream([source[i : i + step] for i in range(0, len(source), step)], 100)
    assert message.finish().changed == {}
    assert len(screen.chunks) > 300 // CHUNK_LINES
    assert all(len(chunk) <= CHUNK_CHARS + 200 for chunk in screen.chunks)
    joined = Content("\n").join(screen.chunks)
    styled = {joined.plain[span.start : span.end] for span in joined.spans if span.style == "bold $text-accent"}
    assert styled == {"def", "return"}


def test_long_string_in_a_fence_is_repaired_at_the_end() -> None:
    # The string is longer than any stretch that is highlighted at once, so a restart inside it is forced.
    source = "```python\nx = '''\n" + "if text: return\n" * 400 + "'''\ny = 1\n```\n"
    message, screen = stream(source.splitlines(keepends=True), None)
    assert not same(screen.chunks, compile_chunks(source))
    screen.apply(message.finish())
    assert same(screen.chunks, compile_chunks(source))


def test_string_that_crosses_settled_lines() -> None:
    body = "".join(f"a{n} = '''\n" + "if text: return\n" * 30 + f"'''\nb{n} = {n}\n" for n in range(6))
    source = f"```python\n{body}"
    message, screen = stream(source.splitlines(keepends=True), None)
    assert same(screen.chunks, compile_chunks(source))
    assert message.finish().changed == {}


def test_code_that_would_look_different_on_its_own() -> None:
    # No line of this begins in a string or comment, and yet none can be read without the first.
    source = "```php\n<?php\n" + "$x = f(1) + $y;\n" * 60
    message, screen = stream(source.splitlines(keepends=True), None)
    assert same(screen.chunks, compile_chunks(source))
    assert message.finish().changed == {}


def test_reference_defined_later_changes_settled_text() -> None:
    message, screen = stream(["See [the page][p].\n\n", "Next.\n\n", "Third.\n\n", "[p]: https://example.com\n"], None)
    assert "[the page][p]" in screen.chunks[0].plain
    update = message.finish()
    screen.apply(update)
    assert set(update.changed) == {0}
    assert screen.chunks[0].plain.startswith("See the page (https://example.com).")


def test_reference_defined_earlier_is_known_at_once() -> None:
    _, screen = stream(["[p]: https://example.com\n\n", "One.\n\nTwo.\n\n", "See [p]."], None)
    assert screen.chunks[-1].plain.endswith("See p (https://example.com).")


def test_only_the_last_chunks_change() -> None:
    text = "\n\n".join(f"Paragraph {n} of **many**." for n in range(200))
    message = StreamingMarkdown()
    for position in range(0, len(text), 11):
        before = message.chunks
        update = message.feed(text[position : position + 11])
        assert all(index >= len(before) - 1 for index in update.changed)
        after = message.chunks
        assert all(
            old is new
            for index, (old, new) in enumerate(zip(before, after, strict=False))
            if index not in update.changed
        )


def pieces(count: int, kind: str) -> list[str]:
    """One open block of `count` tokens of four characters, four at a time."""
    rng = random.Random(1)
    words = {
        "fence": "x = [item for item in range(10)]  # why\n",
        "list": "- an item with **bold** text and `code`\n",
        "table": "| cell | 12345 | a third cell of text |\n",
        "paragraph": "Some words of one paragraph without an end, ",
        "line of code": "x = 1; ",
    }[kind]
    heads = {"fence": "```python\n", "table": "| a | b | c |\n|---|---|---|\n", "line of code": "```python\n"}
    text = heads.get(kind, "") + words * (count * 4 // len(words))
    cut = []
    while text:
        size = rng.randint(12, 20)
        cut.append(text[:size])
        text = text[size:]
    return cut


@pytest.mark.parametrize("kind", ["fence", "list", "table", "paragraph", "line of code"])
def test_work_is_proportional_to_the_text(kind: str) -> None:
    work = {}
    for count in (800, 3_200):
        message = StreamingMarkdown(80)
        for piece in pieces(count, kind):
            message.feed(piece)
        message.finish()
        work[count] = message.compiled_chars
    # Four times the text: four times the work, and some for the part in which a small block is still growing.
    assert work[3_200] < 6 * work[800]


def test_work_per_token_of_a_fence_is_bounded() -> None:
    message = StreamingMarkdown(80)
    most = 0
    for piece in pieces(2_000, "fence"):
        before = message.compiled_chars
        message.feed(piece)
        most = max(most, message.compiled_chars - before)
    # At most 2 * OVERLAP lines of 40 characters, plus the trials for a restart.
    assert most < 8_000
    assert message.compiled_chars < 2_000 * 2_500


def test_resize_while_streaming_and_after() -> None:
    source = (
        "- a list whose text is long enough to be wrapped at a narrow width\n\n"
        + "| a | b |\n|---|---|\n| 1 | 2 |\n\nEnd"
    )
    message, screen = stream([source[:80]], 100)
    screen.apply(message.resize(20))
    assert same(screen.chunks, message.chunks)
    assert "\n  " in screen.chunks[0].plain
    screen.apply(message.feed(source[80:]))
    screen.apply(message.finish())
    assert same(screen.chunks, compile_chunks(source, 20))
    screen.apply(message.resize(60))
    assert same(screen.chunks, compile_chunks(source, 60))
    assert message.resize(60).changed == {}


def test_feed_after_finish_is_an_error() -> None:
    message = StreamingMarkdown()
    message.feed("text")
    message.finish()
    assert message.finish().changed == {}
    with pytest.raises(ValueError, match="finished"):
        message.feed("more")


def test_nothing_at_all() -> None:
    message = StreamingMarkdown()
    assert message.finish() == Update({}, 0)
    assert message.chunks == []
