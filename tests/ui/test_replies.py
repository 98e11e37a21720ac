"""Sending a message on the screen, and what becomes of its reply on the screen and in the store."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from strata_tui.engine.engine import EngineOptions
from strata_tui.engine.events import EngineState
from strata_tui.sessions.rows import Role, Status
from strata_tui.ui.screens.room import RoomScreen

from .long_replies import EOS_PROOF, LONG

if TYPE_CHECKING:
    from tests.ui.conftest import Start


async def test_a_message_and_its_reply_are_shown_and_stored(start: Start) -> None:
    async with start() as run:
        await run.say("hello there")
        await run.until(lambda: run.screen.chat.turns)
        await run.reply()
        user, reply = run.screen.chat.turns
        assert (user.role, user.text, reply.role) == (Role.USER, "hello there", Role.ASSISTANT)
        assert reply.status is Status.DONE and reply.stats is not None and reply.stats.reply_tokens > 0
        assert run.prompt.text == ""
        run.store.flush()
        [session] = run.store.list_sessions()
        assert session.title == "hello there" == run.screen.chat.title
        rows = run.store.branch(session.id)
        assert [(r.role, r.text, r.status) for r in rows] == [(t.role, t.text, Status.DONE) for t in (user, reply)]
        assert rows[1].reply_stats == reply.stats
        assert "hello there" in run.shown() and "You" in run.shown()


async def test_the_message_is_on_disk_before_the_engine_sees_it(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start() as run:
        found: list[str] = []
        generate = run.engine.generate

        def spying(*args: object, **named: object) -> int:
            with sqlite3.connect(run.options.store) as other:
                found.extend(t for (t,) in other.execute("SELECT text FROM messages"))
            other.close()
            return generate(*args, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(run.engine, "generate", spying)
        await run.say("is this kept?")
        await run.until(lambda: found)
        assert found == ["is this kept?"]
        await run.reply()


async def test_the_second_turn_carries_the_first(start: Start) -> None:
    async with start() as run:
        for text, turns in (("one", 2), ("two", 4)):
            await run.say(text)
            await run.until(lambda turns=turns: len(run.screen.chat.turns) == turns)
            await run.reply()
        assert [t.role for t in run.screen.chat.turns] == [Role.USER, Role.ASSISTANT] * 2
        stats = run.screen.chat.turns[3].stats
        assert stats is not None and stats.reused_tokens > 0


async def test_escape_stops_and_keeps_what_was_written(start: Start, slow_engine: EngineOptions) -> None:
    async with start(settings=LONG, engine=slow_engine) as run:
        await run.say(EOS_PROOF)
        await run.until(lambda: run.screen.replies.running and run.screen.replies.running.turn.text)
        run.prompt.insert("not sent yet")
        await run.pilot.press("escape")
        await run.reply()
        reply = run.screen.chat.turns[1]
        assert reply.status is Status.STOPPED and reply.text
        assert run.prompt.text == "not sent yet"
        run.store.flush()
        row = run.store.branch(run.store.list_sessions()[0].id)[1]
        assert (row.status, row.text) == (Status.STOPPED, reply.text)
        assert "stopped" in run.shown()


async def test_a_running_reply_is_checkpointed(start: Start, slow_engine: EngineOptions) -> None:
    async with start(settings=LONG, engine=slow_engine) as run:
        await run.say(EOS_PROOF)
        await run.until(lambda: run.screen.replies.running and run.screen.replies.running.turn.text)
        running = run.screen.replies.running
        assert running is not None
        running.saved = 0.0  # as if it had been stored last a long time ago
        await run.until(lambda: running.saved > 0)
        run.store.flush()
        assert running.chat.session is not None
        row = run.store.branch(running.chat.session)[1]
        assert row.status is Status.RUNNING and row.text and running.turn.text.startswith(row.text)
        await run.pilot.press("escape")
        await run.reply()


async def test_a_message_too_long_comes_back_and_the_chat_goes_on(start: Start) -> None:
    async with start() as run:
        await run.say("first")
        await run.until(lambda: run.screen.chat.turns)
        await run.reply()
        text = "words and more words " * 400
        await run.say(text)
        await run.until(lambda: isinstance(run.app.screen, RoomScreen))
        await run.reply()
        assert run.prompt.text == text.strip()
        assert "Not sent: " in run.screen.flash.text
        await run.pilot.press("escape")
        assert len(run.screen.chat.turns) == 2
        run.prompt.clear()
        await run.say("shorter")
        await run.until(lambda: len(run.screen.chat.turns) == 4)
        await run.reply()
        run.store.flush()
        session = run.store.list_sessions()[0].id
        assert [m.text for m in run.store.branch(session)][::2] == ["first", "shorter"]
        assert text.strip() in [m.text for m in run.store.messages(session)]  # not lost


async def test_quitting_while_a_reply_runs_stores_it_as_stopped(start: Start, slow_engine: EngineOptions) -> None:
    async with start(settings=LONG, engine=slow_engine) as run:
        await run.say(EOS_PROOF)
        await run.until(lambda: run.screen.replies.running and run.screen.replies.running.turn.text)
        await run.pilot.press("ctrl+q")
        await run.until(lambda: run.app.return_code is not None)
        run.store.flush()
        row = run.store.branch(run.store.list_sessions()[0].id)[1]
        assert row.status is Status.STOPPED and row.text
        assert run.engine.snapshot().state is EngineState.CLOSED


async def test_a_write_that_fails_is_told(start: Start) -> None:
    async with start() as run:
        await run.say("first")
        await run.until(lambda: run.screen.chat.turns)
        await run.reply()
        with sqlite3.connect(run.options.store) as other:
            other.execute("CREATE TRIGGER full BEFORE INSERT ON messages BEGIN SELECT RAISE(ABORT, 'no room'); END")
        other.close()
        await run.say("second")
        await run.until(lambda: run.prompt.text)
        assert run.prompt.text == "second"
        assert "no room" in run.screen.flash.text
        assert len(run.screen.chat.turns) == 2
