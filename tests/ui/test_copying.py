"""Text out of the screen: what is copied, and where to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from textual.widgets import Input

from strata_tui.term.clipboard import MAX_OSC_BYTES
from strata_tui.text import clean
from strata_tui.ui.screens.rename import RenameScreen

if TYPE_CHECKING:
    from tests.ui.conftest import Start


async def test_copy_takes_the_source_of_the_last_reply(start: Start) -> None:
    async with start() as run:
        await run.pilot.press("alt+y")
        assert "no reply" in run.screen.flash.text
        await run.say("say something")
        await run.until(lambda: run.screen.chat.turns)
        await run.reply()
        await run.pilot.press("alt+y")
        assert run.app.clipboard == clean(run.screen.chat.turns[1].text)
        assert run.prompt.text == ""


async def test_what_a_terminal_would_drop_is_not_sent_to_it(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATA_TUI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SSH_TTY", "/dev/pts/0")  # a desktop's clipboard program is not asked
    async with start(load=False) as run:
        run.prompt.load_text("x" * (MAX_OSC_BYTES + 1))
        run.prompt.select_all()
        await run.pilot.press("ctrl+c")
        await run.until(lambda: "too long for the terminal's clipboard: written to " in run.screen.flash.text)
        assert run.app.clipboard == ""
        assert (tmp_path / "cache" / "copied.txt").read_text() == run.prompt.text


async def test_what_is_copied_on_a_page_goes_the_same_way(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_TTY", "/dev/pts/0")
    monkeypatch.delenv("TMUX", raising=False)
    async with start(load=False) as run:
        run.screen.chat.title = "A title"
        await run.say("/rename")
        await run.until(lambda: isinstance(run.app.screen, RenameScreen))
        run.app.screen.query_one(Input).select_all()
        await run.pilot.press("ctrl+c")
        await run.until(lambda: "The selection: sent to the terminal (OSC 52)." in run.shown())
        assert run.app.clipboard == "A title"
