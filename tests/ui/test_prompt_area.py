"""The prompt with its menu and attachments, on the whole screen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from textual.events import Paste

from strata_tui.ui.attachments import parted
from strata_tui.ui.screens.text_screen import TextScreen

if TYPE_CHECKING:
    from tests.ui.conftest import Start


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes.txt").write_text("remember\n")
    (folder / "node.py").write_text("x = 1\n")
    (folder / "picture.bin").write_bytes(b"\x89\0\0")
    monkeypatch.chdir(folder)
    return folder


async def test_a_file_is_found_attached_and_sent(start: Start) -> None:
    async with start() as run:
        await run.pilot.press(*"look at @note")
        await run.until(lambda: run.screen.menu.open)
        assert "notes.txt" in run.shown()
        await run.pilot.press("enter")
        await run.until(lambda: run.prompt.attached)
        assert run.prompt.text == "look at @notes.txt " and not run.screen.menu.open
        assert "[notes.txt, 1 line]" in run.shown()
        await run.pilot.press("enter")
        await run.until(lambda: run.screen.chat.turns)
        typed, attached = parted(run.screen.chat.turns[0].text)
        assert typed == "look at @notes.txt" and [a.text for a in attached] == ["remember\n"]
        await run.reply()
        assert "[notes.txt, 1 line]" in run.shown() and "remember" not in run.shown()
        assert run.screen.chat.title == "look at @notes.txt"
        assert not run.screen.attachments.display


async def test_a_file_that_is_no_text_is_refused_in_a_sentence(start: Start) -> None:
    async with start(load=False) as run:
        await run.pilot.press(*"@pict")
        await run.until(lambda: run.screen.menu.open)
        await run.pilot.press("tab")
        await run.until(lambda: run.screen.flash.text)
        assert "picture.bin cannot be attached" in run.screen.flash.text and not run.prompt.attached


async def test_escape_closes_the_menu_until_something_else_is_typed(start: Start) -> None:
    async with start(load=False) as run:
        await run.pilot.press(*"@no")
        await run.until(lambda: run.screen.menu.open)
        await run.pilot.press("escape", "d")
        await run.pilot.pause()
        assert run.prompt.text == "@nod" and not run.screen.menu.open
        await run.pilot.press(*" @no")
        await run.until(lambda: run.screen.menu.open)


async def test_commands_are_completed(start: Start) -> None:
    async with start(load=False) as run:
        await run.pilot.press(*"/the")
        await run.until(lambda: run.screen.menu.open)
        assert "Choose a theme" in run.shown()
        await run.pilot.press("tab")
        await run.until(lambda: run.prompt.text == "/theme " and run.screen.menu.open)
        await run.pilot.press(*"strata-l", "tab")
        await run.until(lambda: run.prompt.text == "/theme strata-light")
        await run.pilot.press("enter")
        await run.until(lambda: run.app.theme == "strata-light")
        assert run.prompt.text == ""


async def test_arrows_choose_and_enter_does_it(start: Start) -> None:
    async with start(load=False) as run:
        await run.pilot.press(*"/h")
        await run.until(lambda: run.screen.menu.open)
        await run.pilot.press("down", "up", "enter")
        await run.until(lambda: isinstance(run.app.screen, TextScreen))
        assert run.prompt.text == ""


async def test_an_ambiguous_beginning_is_only_filled_in(start: Start) -> None:
    async with start(load=False) as run:
        await run.pilot.press(*"/de")
        await run.until(lambda: len(run.screen.menu.choices) == 2)
        await run.pilot.press("enter")
        await run.until(lambda: run.prompt.text == "/delete")
        assert run.screen.flash.text == ""


async def test_attachments_are_opened_removed_and_unfolded(start: Start) -> None:
    async with start(load=False) as run:
        for name in ("one", "two", "three"):
            run.app.post_message(Paste(f"{name}\n" * 1000))
        await run.until(lambda: len(run.prompt.attached) == 3)
        await run.pilot.press("shift+tab")
        assert run.screen.attachments.has_focus
        await run.pilot.press("left", "enter")
        await run.until(lambda: isinstance(run.app.screen, TextScreen))
        assert "two" in run.shown()
        await run.pilot.press("escape", "x")
        await run.until(lambda: len(run.prompt.attached) == 2)
        await run.pilot.click("#attachments", offset=(3, 0))
        assert run.screen.attachments.chosen == 0
        await run.pilot.press("right", "p")
        await run.until(lambda: len(run.prompt.attached) == 1)
        assert run.prompt.text == "three\n" * 1000 and run.prompt.has_focus
        run.prompt.clear()
        await run.say("/detach 2")
        assert "number from 1 to 1" in run.screen.flash.text
        await run.say("/detach")
        assert not run.prompt.attached
        await run.say("/detach")
        assert "Nothing is attached" in run.screen.flash.text


async def test_a_file_is_attached_by_command(start: Start) -> None:
    async with start(load=False) as run:
        await run.say("/attach node.py")
        await run.until(lambda: run.prompt.attached)
        assert run.prompt.attached[0].name == "node.py"
        await run.say("/attach missing.txt")
        await run.until(lambda: "no such file" in run.screen.flash.text)


async def test_drafts_keep_their_attachments(start: Start) -> None:
    async with start(load=False) as run:
        await run.pilot.press(*"later")
        await run.screen.completer.attach("node.py", Path("node.py"))
        await run.pilot.press("ctrl+n")
        await run.until(lambda: run.prompt.message == "")
        run.store.flush()
        [kept] = run.store.list_sessions()
        await run.screen.commands.open_session(kept.id)
        assert run.prompt.text == "later" and [a.name for a in run.prompt.attached] == ["node.py"]


async def test_what_was_sent_in_earlier_runs_comes_back_with_up(start: Start) -> None:
    async with start() as run:
        await run.say("from the first run")
        await run.until(lambda: run.screen.chat.turns)
        await run.reply()
    async with start(load=False) as run:
        await run.until(lambda: len(run.prompt.sent))
        await run.pilot.press("up")
        assert run.prompt.text == "from the first run"
