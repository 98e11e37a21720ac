"""The whole screen on the real engine and a small random model: sizes, commands, pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from textual.events import Key

from strata_tui.config import read_file
from strata_tui.engine.engine import EngineOptions
from strata_tui.sessions.rows import Status
from strata_tui.ui.screens.text_screen import TextScreen
from strata_tui.ui.widgets.chunks import Piece

from .long_replies import EOS_PROOF, LONG

if TYPE_CHECKING:
    from tests.ui.conftest import Start


async def test_the_ladder_of_control_c(start: Start, slow_engine: EngineOptions) -> None:
    async with start(settings=LONG, engine=slow_engine) as run:
        await run.say(EOS_PROOF)
        await run.until(lambda: run.screen.replies.running and run.screen.replies.running.turn.text)
        run.prompt.insert("some text")
        run.prompt.select_all()
        await run.pilot.press("ctrl+c")
        assert run.app.clipboard == "some text" and run.screen.replies.running
        await run.pilot.press("ctrl+c")
        await run.reply()
        assert run.screen.chat.turns[1].status is Status.STOPPED
        assert run.prompt.text == "some text"
        await run.pilot.press("ctrl+c")
        assert run.prompt.text == ""
        await run.pilot.press("ctrl+z")
        assert run.prompt.text == "some text"
        await run.pilot.press("ctrl+c", "ctrl+c")
        assert "again to quit" in run.screen.flash.text
        await run.pilot.press("ctrl+c")
        await run.until(lambda: run.app.return_code is not None)
        assert run.app.return_code == 0


async def test_unknown_commands_are_kept(start: Start) -> None:
    async with start() as run:
        await run.say("/xport now")
        assert run.prompt.text == "/xport now"
        assert "There is no command /xport" in run.screen.flash.text
        run.prompt.clear()
        await run.say("//help is a word")
        await run.until(lambda: run.screen.chat.turns)
        assert run.screen.chat.turns[0].text == "/help is a word"
        await run.reply()


async def test_help_and_plan_are_pages(start: Start) -> None:
    async with start() as run:
        await run.pilot.press("f1")
        await run.until(lambda: isinstance(run.app.screen, TextScreen))
        assert "/export" in run.shown()
        await run.pilot.press("escape")
        await run.until(lambda: run.app.screen is run.screen)
        await run.say("/plan")
        await run.until(lambda: isinstance(run.app.screen, TextScreen))
        assert all(line.label in run.shown() for line in run.screen.plan)
        await run.pilot.press("escape")


async def test_export_names_the_path(start: Start, tmp_path: Path) -> None:
    async with start() as run:
        await run.say("/export")
        assert "nothing to export" in run.screen.flash.text
        await run.say("export me")
        await run.until(lambda: run.screen.chat.turns)
        await run.reply()
        await run.say(f"/export {tmp_path}")
        await run.until(lambda: "Written to" in run.screen.flash.text)
        path = Path(run.screen.flash.text.removeprefix("Written to "))
        assert path.parent == tmp_path and "export me" in path.read_text()


async def test_every_command_of_the_palette_is_an_action(start: Start) -> None:
    async with start() as run:
        titles = {command.title for command in run.app.get_system_commands(run.screen)}
        assert {"Start a new chat", "Quit", "Choose a theme"} <= titles
        await run.pilot.press("ctrl+p", *"memory plan", "enter")
        await run.until(lambda: isinstance(run.app.screen, TextScreen))


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (100, 30), (120, 40), (170, 50)])
async def test_sizes(start: Start, size: tuple[int, int]) -> None:
    async with start(size=size) as run:
        await run.say("hello there")
        await run.until(lambda: run.screen.chat.turns)
        await run.reply()
        assert run.screen.engine_panel.display == (size[0] >= 100)
        assert run.screen.chats.display == (size[0] >= 160)
        shown = run.shown()
        assert "hello there" in shown and "Prompt" in shown and "ready" in shown
        assert not run.screen.query_one("TooSmall").display
        await run.pilot.press("f4")
        await run.pilot.pause()
        assert run.screen.engine_panel.display == (size[0] < 100)
        if size[0] < 100:
            assert "pinned mirror" in run.shown()
            await run.pilot.press("escape")
            assert not run.screen.engine_panel.display


async def test_too_small_says_so_and_nothing_is_lost(start: Start, slow_engine: EngineOptions) -> None:
    async with start(settings=replace(LONG, max_tokens=30), engine=slow_engine) as run:
        await run.say("hello there")
        await run.until(lambda: run.screen.replies.running and run.screen.replies.running.turn.text)
        run.prompt.insert("typed")
        await run.pilot.resize_terminal(50, 12)
        await run.pilot.pause()
        assert "needed 60 x 16" in run.shown() and "now 50 x 12" in run.shown()
        await run.reply()  # it went on
        await run.pilot.resize_terminal(120, 40)
        await run.pilot.pause(0.3)
        shown = run.shown()
        assert "hello there" in shown and "typed" in shown and "needed" not in shown
        view = run.screen.transcript.view_of(run.screen.chat.turns[1])
        assert view is not None
        assert list(view.query(Piece))


async def test_a_bad_theme_is_told_and_the_default_used(start: Start, tmp_path: Path) -> None:
    themes = tmp_path / "config" / "themes"
    themes.mkdir(parents=True)
    (themes / "mine.toml").write_text("name = 'mine'\n")
    async with start(settings=replace(LONG, theme="plum")) as run:
        assert "There is no theme plum" in run.screen.flash.text
        assert "mine.toml: colors.primary is missing" in run.screen.flash.text
        assert run.app.theme == "strata-dark"
        await run.say("/theme strata-light")
        await run.until(lambda: run.options.settings_file.exists())
        await run.until(lambda: read_file(run.options.settings_file).theme == "strata-light")


async def test_joiners_that_are_typed_are_kept(start: Start) -> None:
    async with start(load=False) as run:
        for character in "a\u200db\u200cc":
            run.prompt.post_message(Key(character, character))
        await run.until(lambda: run.prompt.text.endswith("c"))
        assert run.prompt.text == "a\u200db\u200cc"


async def test_a_command_while_the_program_ends_is_nothing(start: Start) -> None:
    async with start() as run:
        run.screen.leave()
        await run.screen.commands.perform("open", "/none.gguf")
        await run.until(lambda: run.app.return_code is not None)
        assert run.app.return_code == 0
