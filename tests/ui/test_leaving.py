"""Quitting while the disk of the chats is full: said once, and nothing is lost before that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from strata_tui.config import Settings
from strata_tui.engine.engine import EngineOptions
from strata_tui.sessions.rows import Status
from strata_tui.sessions.store import Store

if TYPE_CHECKING:
    from tests.ui.conftest import Running, Start

DRAFT = "kept words " * 4000  # more than a page that is there has room for


def fill(run: Running) -> None:
    run.store._database._writer.execute("PRAGMA max_page_count = 1")  # SQLite's own limit: no page can be added


def free(run: Running) -> None:
    run.store._database._writer.execute("PRAGMA max_page_count = 1000000")


async def stays(run: Running) -> str:
    await run.pilot.press("ctrl+q")
    await run.until(lambda: run.screen.departure.warning and not run.screen.leaving)
    assert run.app.is_running and run.app.return_code is None
    return run.screen.flash.text


async def leaves(run: Running) -> None:
    await run.pilot.press("ctrl+q")
    await run.until(lambda: run.app.return_code == 0)


async def test_what_is_typed_is_not_lost_without_a_word(start: Start, tmp_path: Path) -> None:
    async with start(load=False) as run:
        fill(run)
        run.prompt.load_message(DRAFT)
        said = await stays(run)
        assert said.startswith("Not stored: what you typed (The disk of") and "is full" in said
        assert "/export PATH" in said and "quitting again leaves" in said
        assert run.prompt.message == DRAFT
        run.prompt.load_message("")
        await run.screen.commands.chats.save_draft()  # an empty one has room: what was typed is not forgotten
        await run.say(f"/export {tmp_path}/out.md")
        await run.until((tmp_path / "out.md").exists)
        await run.say(f"/export {tmp_path}/out.json")
        await run.until((tmp_path / "out.json").exists)
        run.prompt.load_message(DRAFT)
        await leaves(run)
    assert DRAFT.strip() in (tmp_path / "out.md").read_text() and "User (not sent)" in (tmp_path / "out.md").read_text()
    assert json.loads((tmp_path / "out.json").read_text())["session"]["draft"] == DRAFT


async def test_once_there_is_room_again_quitting_is_as_ever(start: Start) -> None:
    async with start(load=False) as run:
        fill(run)
        run.prompt.load_message(DRAFT)
        await stays(run)
        free(run)
        await leaves(run)
    with Store(run.options.store) as store:
        assert [chat.draft for chat in store.list_sessions()] == [DRAFT]


async def test_a_stored_draft_makes_the_next_loss_news(start: Start) -> None:
    async with start(load=False) as run:
        fill(run)
        run.prompt.load_message(DRAFT)
        await stays(run)
        free(run)
        run.prompt.load_message(DRAFT + "x")
        await run.until(lambda: not run.screen.departure.warning)
        run.prompt.load_message(DRAFT * 3)
        fill(run)
        await stays(run)
        free(run)


async def test_a_reply_that_is_not_stored_is_said_and_kept(
    start: Start, slow_engine: EngineOptions, tmp_path: Path
) -> None:
    async with start(settings=Settings(temperature=0.0, max_tokens=400), engine=slow_engine) as run:
        await run.say("one")
        await run.until(lambda: run.screen.replies.running and run.screen.replies.running.turn.text)
        turn = run.screen.chat.turns[-1]
        await run.until(lambda: turn.key)
        fill(run)
        turn.text += DRAFT
        await run.pilot.press("escape")
        await run.reply()
        assert "the end of a reply" in await stays(run)
        await run.pilot.press("alt+x", "enter")
        await run.until(lambda: run.screen.flash.text.startswith("Written to"))
        written = Path(run.screen.flash.text.removeprefix("Written to "))
        try:
            assert DRAFT.strip() in written.read_text()
        finally:
            written.unlink()
        free(run)
        await leaves(run)
    with Store(run.options.store) as store:
        [chat] = store.list_sessions()
        reply = store.branch(chat.id)[-1]
    assert DRAFT in reply.text and reply.text == turn.text and reply.status is Status.STOPPED


async def test_a_reply_whose_beginning_was_not_stored_is_stored_with_the_next_message(start: Start) -> None:
    async with start(settings=Settings(temperature=0.0, max_tokens=12)) as run:
        replies, store = run.screen.replies, run.store
        begin = store._database._writer
        await run.say("one")
        await run.until(lambda: len(run.screen.chat.turns) == 2)
        await run.reply()
        begin.execute("PRAGMA query_only = ON")  # refuses every write
        replies_before = len(run.screen.chat.turns)
        user = run.screen.chat.turns[0]
        run.screen.turns.regenerate(user)
        await run.until(lambda: run.screen.replies.running)
        await run.reply()
        turn = run.screen.chat.turns[-1]
        assert replies.unkept(run.screen.chat) and turn.key is None and replies_before == 2
        begin.execute("PRAGMA query_only = OFF")
        await run.say("two")
        await run.until(lambda: len(run.screen.chat.turns) == 4)
        await run.reply()
        assert turn.key is not None and not replies.unkept(run.screen.chat)
        rows = store.branch(run.screen.chat.session or 0)
        assert [row.text for row in rows][1] == turn.text and rows[2].text == "two"
