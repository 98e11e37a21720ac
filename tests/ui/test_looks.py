"""What must be seen on a small screen, and what must be told without colour."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.style import Style
from textual.command import CommandList
from textual.content import Content

from strata_tui.config import Settings
from strata_tui.engine.counters import MemoryReport
from strata_tui.engine.events import LoadProgress, ModelInfo, Snapshot
from strata_tui.sessions.portable import PortableChat, PortableMessage
from strata_tui.sessions.rows import Role
from strata_tui.ui.actions import ACTIONS, Where
from strata_tui.ui.attachments import attachment
from strata_tui.ui.help_text import help_text
from strata_tui.ui.history import RateHistory
from strata_tui.ui.panel_parts import join_columns
from strata_tui.ui.panel_text import memory_rows, panel_sections
from strata_tui.ui.panels import CHATS
from strata_tui.ui.themes import TERMINAL_THEME
from strata_tui.ui.widgets.chats_panel import ChatFilter, ChatList
from strata_tui.ui.widgets.engine_panel import EnginePanel
from strata_tui.ui.widgets.key_line import KeyLine, key_text
from strata_tui.ui.widgets.load_bar import load_lines, load_text
from strata_tui.ui.widgets.title_bar import title_text

if TYPE_CHECKING:
    from tests.ui.conftest import Running, Start

SMALL = (60, 16)
GIB = 1 << 30
MODEL = ModelInfo("/m.gguf", "a model with a long name", "qwen3moe", "Q4_K_M", 0, 0, 0, 48, 128, 8, 32768, 16384)
GPU = MemoryReport("card", True, 16 * GIB, 24 * GIB, 2 * GIB, 2 * GIB, 8 * GIB, 10, 10, 20, GIB)


def rows(run: Running) -> list[str]:
    """The screen's lines, whole."""
    return [strip.text for strip in run.app.screen._compositor.render_strips()]


def cells(run: Running, row: int) -> list[tuple[str, Style]]:
    """Every character of a line with its style, as the terminal gets it."""
    strip = run.app.screen._compositor.render_strips()[row]
    return [(letter, segment.style or Style()) for segment in strip for letter in segment.text]


def row_of(run: Running, text: str) -> int:
    return next(n for n, row in enumerate(rows(run)) if text in row)


def chat(title: str, *texts: str, thinking: str = "") -> PortableChat:
    messages = tuple(
        PortableMessage(
            n - 1 if n else None,
            Role.ASSISTANT if n % 2 else Role.USER,
            text,
            float(n),
            float(n),
            thinking=thinking if n % 2 else "",
        )
        for n, text in enumerate(texts)
    )
    return PortableChat(title, 1.0, 1.0, messages, len(texts) - 1)


# Texts for their width


def test_a_key_that_does_not_fit_is_left_out_whole_and_help_stays() -> None:
    entries = [("enter", "enter", "send"), ("ctrl+j", "^j", "line"), ("escape", "esc", "stop")]
    for width in range(12, 60):
        text = key_text(entries, ("f1", "f1", "help"), width).plain
        assert len(text) == width and text.endswith("f1 help ")
        assert text.split() in (
            "f1 help".split(),
            "enter send f1 help".split(),
            "enter send ^j line f1 help".split(),
            "enter send ^j line esc stop f1 help".split(),
        )
    assert "esc stop" in text


def test_the_title_line_keeps_what_the_model_is() -> None:
    for width in range(50, 130):
        text = title_text("A chat with a title of some length", MODEL.name, "Q4_K_M  16k ctx", width).plain
        assert len(text) == width and text.endswith(" Q4_K_M  16k ctx ")
        assert text.startswith(" strata  A chat with")
    assert MODEL.name in text and "some length" in text


def test_each_command_of_the_help_has_its_column_where_there_is_room() -> None:
    lines = help_text(width=99, settings=Path("settings.toml")).plain.split("\n")
    labels = {action.usage: action.label for action in ACTIONS if action.where is Where.CHAT and action.usage}
    for usage, label in labels.items():
        assert any(f"{usage}  " in line and line.endswith(label) for line in lines), usage


def test_help_fits_narrow_pages() -> None:
    for width in (55, 79):
        text = help_text(width=width, settings=Path(f"/home/{'someone' * 12}/settings.toml"))
        assert max(line.cell_length for line in text.split("\n")) <= width


def test_a_load_bar_says_how_it_is_stopped_and_fits() -> None:
    progress = LoadProgress("a-model-with-a-rather-long-name.gguf", 3 * GIB, 17 * GIB)
    for width in (60, 80, 120):
        text = load_text(progress, width, "/pull stop ends it")
        assert text.cell_length <= width and text.plain.endswith("/pull stop ends it ")


def test_bars_of_two_loads_are_under_one_another() -> None:
    loads = [
        (LoadProgress("filling slots", 5 * GIB, 8 * GIB), "esc stops"),
        (LoadProgress("Qwen3-30B-A3B-Q4_K_M.gguf", 3 * GIB, 17 * GIB), "/pull stop ends it"),
    ]
    for width in (80, 120, 200):
        spans = [re.search("[█░]+", line.plain).span() for line in load_lines(loads, width)]  # type: ignore[union-attr]
        assert spans[0] == spans[1] and spans[0][1] - spans[0][0] >= 12
    assert all(line.cell_length <= 60 for line in load_lines(loads, 60))
    unknown, known = load_lines([(LoadProgress("opening", 0, 0), "esc stops"), loads[1]], 80)
    assert unknown.plain.index("…") == known.plain.index("3.0 /")


def test_the_bar_of_memory_adds_up() -> None:
    bar = memory_rows(Snapshot(model=MODEL, memory=GPU), 54)[0].text.plain
    assert len(bar) == 54 and bar.endswith("  66 %")
    assert [bar.count(mark) for mark in "▓▒█░·"] == [4, 4, 16, 8, 16]  # of 24 GiB in 48 cells


@pytest.mark.parametrize("used", [16, 23])
def test_the_pieces_of_the_bar_are_named_in_its_own_ink(used: int) -> None:
    def ink(content: Content, mark: str) -> str:
        place = content.plain.index(mark)
        return next(str(span.style) for span in content.spans if span.start <= place < span.end)

    bar, *legend = (
        row.text for row in memory_rows(Snapshot(model=MODEL, memory=replace(GPU, vram_used=used * GIB)), 54)
    )
    for mark, name in (("▓", "trunk"), ("▒", "KV"), ("█", "slots"), ("░", "other")):
        [named] = [row for row in legend if f"{mark}{name} " in row.plain]
        assert ink(named, mark) == ink(bar, mark) == ("$warning" if used > 21 else "$primary")


def test_two_columns_hold_all_and_fit() -> None:
    for column, gap, between in ((27, 2, " │"), (36, 3, " │ ")):
        sections = panel_sections(Snapshot(model=MODEL, memory=GPU), RateHistory(), column)
        lines = join_columns(sections, column, 10, gap, whole=True).split("\n")
        assert max(line.cell_length for line in lines) <= 2 * column + gap
        text = "\n".join(line.plain for line in lines)
        assert all(section.heading in text for section in sections)
        assert "…" not in text and len(lines) < 30
        assert all(line.plain[column : column + gap] == between for line in lines)  # they are not read as one


# A small screen


async def test_a_small_screen_shows_what_one_has_to_know(start: Start) -> None:
    async with start(size=SMALL) as run:
        text = "\n".join(rows(run))
        assert "f1 keys and commands" in text and "/ commands" in text and "Memory plan" in text
        assert rows(run)[0].rstrip().endswith(" ctx")
        assert "ready" in text and rows(run)[-1].startswith(" enter send") and rows(run)[-1].endswith(" f1 help ")
        await run.pilot.press("f4")
        panel = run.screen.query_one(EnginePanel)
        await run.until(lambda: panel.region.width == SMALL[0])
        text = "\n".join(rows(run))
        assert re.search(r"Memory .*│Speed ", text)  # side by side, and told apart
        await run.pilot.press("escape", "alt+o")
        await run.until(lambda: run.app.screen is not run.screen)
        assert rows(run)[row_of(run, "temperature")].rstrip("┃ ").endswith("settings")
        assert "enter changes, del takes back, ←/→ chat, model, all" in "\n".join(rows(run))


async def test_a_click_on_a_key_presses_it(start: Start) -> None:
    async with start() as run:  # loaded: the line stays as it is
        line = run.screen.query_one(KeyLine)
        await run.until(lambda: rows(run)[-1].startswith(" enter send  ^j line  f2 chats"))
        await run.pilot.click(line, offset=(rows(run)[-1].index("f2 chats") + 1, 0))
        await run.until(lambda: run.screen.chats.display)


async def test_folding_out_is_no_news(start: Start) -> None:
    thinking = "\n".join(f"thought {n}" for n in range(40))
    async with start(load=False, size=(80, 24)) as run:
        [key] = run.store.add_chats([chat("t", "ask", "answer\n\n" * 30, thinking=thinking)]).result()
        await run.screen.commands.open_session(key)
        await run.pilot.pause(0.2)  # the end was seen
        run.screen.transcript.scroll_home(animate=False, immediate=True)
        await run.pilot.pause(0.2)
        assert not run.screen.query_one("#unseen").display
        run.screen.transcript.fold_thinking()
        await run.until(lambda: run.screen.transcript.virtual_size.height > 90)
        await run.pilot.pause(0.2)
        assert not run.screen.query_one("#unseen").display


# The list of chats


async def test_without_the_keys_the_list_marks_the_shown_chat(start: Start) -> None:
    async with start(load=False, size=(200, 50)) as run:
        first, second = run.store.add_chats([chat("one", "a", "b"), chat("two", "c", "d")]).result()
        await run.screen.commands.open_session(first)
        await run.until(lambda: run.screen.chats.highlighted == first)
        await run.pilot.press("f2", "up", "down", "up")
        await run.screen.commands.open_session(second)
        await run.until(lambda: run.prompt.has_focus and run.screen.chats.highlighted == second)


async def test_a_filter_goes_with_the_list(start: Start) -> None:
    async with start(load=False, size=(80, 24)) as run:
        run.store.add_chats([chat("one", "a", "b"), chat("two", "c", "d")]).result()
        await run.pilot.press("f2")
        await run.until(lambda: run.screen.query_one(ChatList).option_count)
        run.screen.chats.focus_filter()
        await run.pilot.press("t", "w", "enter", "enter")
        await run.until(lambda: run.screen.chat.title == "two" and not run.screen.chats.display)
        assert run.screen.query_one(ChatFilter).value == ""


async def test_a_blur_from_before_a_list_was_opened_does_not_close_it(start: Start) -> None:
    async with start(load=False, size=(80, 24)) as run:
        run.screen.panels.toggle(CHATS)
        run.screen.chats.on_descendant_blur()
        await run.pilot.pause()
        assert run.screen.chats.display
        run.screen.chats.focus_list()
        await run.until(lambda: run.screen.chats.has_focus_within)
        await run.pilot.pause()
        run.screen.prompt.focus()
        await run.until(lambda: not run.screen.chats.display)


async def test_where_no_chat_is_chosen_none_is_marked(start: Start) -> None:
    async with start(load=False, size=(200, 50), settings=Settings(theme="strata-dark")) as run:
        run.store.add_chats([chat("one", "a", "b")]).result()
        await run.screen.commands.chats.refresh()
        chats = run.screen.query_one(ChatList)
        await run.until(lambda: any("one" in row for row in rows(run)))
        assert chats.highlighted is None
        ground = chats.get_component_rich_style("option-list--option-highlighted").bgcolor
        shown = range(chats.region.y, chats.region.bottom)
        assert len(shown) > 30
        assert not [row for row in shown if cells(run, row)[chats.region.x + 1][1].bgcolor == ground]


async def test_the_border_says_how_many_chats_there_are(start: Start) -> None:
    async with start(load=False, size=(200, 50)) as run:
        for number, (title, filtered, of) in enumerate((("one", "1 chat", "1 of 1"), ("two", "2 chats", "1 of 2"))):
            run.store.add_chats([chat(title, "a", "b")]).result()
            await run.screen.commands.chats.refresh()
            await run.until(lambda there=filtered: run.screen.chats.border_subtitle == there)
            run.screen.query_one(ChatFilter).value = title
            await run.until(lambda there=f"{of} chat{'s' * number}": run.screen.chats.border_subtitle == there)
            run.screen.query_one(ChatFilter).value = ""
            await run.pilot.pause()


# Without colour, and in the terminal's own


@pytest.mark.parametrize("no_color", [True, False], ids=["NO_COLOR", "sixteen colours"])
async def test_what_is_chosen_can_be_told_without_colour(
    start: Start, monkeypatch: pytest.MonkeyPatch, no_color: bool
) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    else:
        monkeypatch.setattr("textual.constants.COLOR_SYSTEM", "standard")
    async with start(load=False) as run:
        assert run.app.theme == TERMINAL_THEME
        [key] = run.store.add_chats([chat("t", "hello", "there")]).result()
        await run.screen.commands.open_session(key)
        await run.until(lambda: any("hello" in row for row in rows(run)))
        if no_color:
            for row in range(40):
                for letter, style in cells(run, row):
                    assert all(c is None or c.is_default for c in (style.color, style.bgcolor)), letter
        assert any("┏━ Prompt" in row for row in rows(run))  # it has the keys
        [cursor] = [letter for letter, style in cells(run, row_of(run, "Message, /")) if style.reverse]
        assert cursor == "M"
        await run.pilot.press("alt+up")
        await run.until(lambda: any("╭─ Prompt" in row for row in rows(run)))
        assert any(row.startswith("█ ") and "there" in row for row in rows(run))  # selected
        assert any(row.startswith("▌ ") and "hello" in row for row in rows(run))
        run.screen.flash.say("it broke", error=True)
        await run.pilot.press("escape")
        run.screen.flash.say("it broke", error=True)
        await run.until(lambda: any(row.startswith(" ! it broke") for row in rows(run)))
        await run.pilot.press("slash")
        await run.until(lambda: run.screen.menu.open)
        assert reversed_rows(run) == [row_of(run, "/attach")]
        await run.pilot.press("escape", "ctrl+c", "alt+o")
        await run.until(lambda: run.app.screen is not run.screen)
        assert reversed_rows(run) == [row_of(run, "system prompt")]
        await run.pilot.press("enter")
        await run.until(lambda: any("^s keeps" in row for row in rows(run)))
        assert row_of(run, " Keep ") not in reversed_rows(run), "the text has the focus"
        await run.pilot.press("tab")
        await run.until(lambda: reversed_rows(run) == [row_of(run, " Keep ")])
        await run.pilot.press("escape")
        await run.pilot.press("escape", "ctrl+p")
        await run.until(lambda: any("Close what is on top" in row for row in rows(run)))
        await run.until(lambda: reversed_rows(run) == [row_of(run, "Close what is on top")])


def reversed_rows(run: Running) -> list[int]:
    """The lines of which more than a cursor is reversed."""
    return [row for row in range(40) if sum(bool(style.reverse) for _, style in cells(run, row)) > 5]


async def test_a_chosen_row_has_one_ink(start: Start) -> None:
    async with start(load=False, settings=Settings(theme="strata-dark")) as run:
        key = run.store.add_chats([chat("gone", "a", "b")]).result()[0]
        run.store.delete(key).result()
        await run.screen.commands.perform("bin")
        await run.until(lambda: any("2 messages" in row for row in rows(run)))
        row = row_of(run, "2 messages")
        start_, end = rows(run)[row].index("days"), rows(run)[row].index("messages")
        styles = {(style.color, style.bgcolor) for _, style in cells(run, row)[start_:end]}
        assert len(styles) == 1


async def test_the_first_attachment_with_the_keys_is_marked(start: Start) -> None:
    async with start(load=False) as run:
        run.prompt.attach(attachment("x\n", "a.txt"))
        await run.until(lambda: run.screen.attachments.display)
        await run.pilot.press("shift+tab")
        await run.until(lambda: run.screen.attachments.has_focus)
        row = row_of(run, "[a.txt, 1 line]")
        await run.until(lambda: cells(run, row)[rows(run)[row].index("a.txt")][1].bold)


async def test_the_name_of_an_attachment_is_no_markup(start: Start) -> None:
    async with start(load=False) as run:
        run.prompt.attach(attachment("its text\n", "/[b]/x.txt"))
        await run.screen.commands.perform("attachment_open")
        await run.until(lambda: any("[/[b]/x.txt, 1 line]" in row for row in rows(run)))


# The palettes


async def test_the_palette_is_a_page_with_a_line_an_action(start: Start) -> None:
    async with start(load=False, size=(80, 24)) as run:
        await run.pilot.press("ctrl+p", *"new chat")
        await run.until(lambda: any("Start a new chat" in row and "^n alt+n  /new" in row for row in rows(run)))
        assert any("┏━ Commands ━" in row for row in rows(run))


async def test_the_palette_of_themes_begins_with_the_one_in_use_and_ours(start: Start) -> None:
    async with start(load=False, size=(80, 24), settings=Settings(theme="strata-dusk")) as run:
        await run.screen.commands.perform("theme")
        await run.until(lambda: any("strata-contrast" in row for row in rows(run)))
        ours, others = row_of(run, "strata-terminal"), row_of(run, "ansi-dark")
        assert row_of(run, "in use, dark") == row_of(run, "strata-dusk") < ours < others
        await run.pilot.press("enter")
        await run.until(lambda: run.app.screen is run.screen)
        assert run.app.theme == "strata-dusk", "enter at once changes nothing"
        await run.screen.commands.perform("theme")
        await run.until(lambda: any("strata-contrast" in row for row in rows(run)))
        await run.pilot.press(*"strata-paper", "enter")
        await run.until(lambda: run.app.theme == "strata-paper")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_list_of_a_palette_takes_what_room_there_is(start: Start, size: tuple[int, int]) -> None:
    async with start(load=False, size=size) as run:
        await run.screen.commands.perform("palette")
        await run.until(lambda: any("Close what is on top" in row for row in rows(run)))
        listed, page = run.app.screen.query_one(CommandList), run.app.screen.query_one("#--container")
        await run.until(lambda: listed.region.bottom == page.region.bottom - 1 == size[1] - 1)
        assert listed.max_scroll_y > 0


async def test_in_the_terminals_colours_a_hint_is_told_from_what_is_typed(start: Start) -> None:
    async with start(load=False, settings=Settings(theme=TERMINAL_THEME), size=SMALL) as run:
        row = row_of(run, "essage, / for commands")
        assert {style.italic for letter, style in cells(run, row)[4:20] if letter.strip()} == {True}
        await run.pilot.press("m", "e")
        assert not any(style.italic for letter, style in cells(run, row_of(run, " me ")) if letter.strip())
