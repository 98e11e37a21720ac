"""Chats that are open in another program, which are read-only here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from textual.events import AppBlur, AppFocus

from strata_tui.sessions.store import Store

from .stored_chats import fill, line, without_model

if TYPE_CHECKING:
    from tests.ui.conftest import Start


async def test_a_chat_open_elsewhere_is_read_only_and_can_be_forked(start: Start) -> None:
    async with start() as run:
        [session, other] = fill(run, line("Shared", "question", "answer"), line("Mine", "x"))
        run.store.set_draft(session, "their draft").result()
        with Store(run.options.store) as elsewhere:
            elsewhere.claim(session).result()
            await run.screen.commands.open_session(session)
            assert "open in another window (process" in run.screen.flash.text and "/fork" in run.screen.flash.text
            assert "(read-only) Shared" in run.shown()
            assert run.prompt.text == ""  # the draft is theirs
            await run.say("may I?")
            assert "read-only here" in run.screen.flash.text and run.prompt.text == "may I?"
            await run.pilot.pause(0.2)
            assert [m.text for m in run.store.branch(session)] == ["question", "answer"]
            await run.screen.commands.open_session(other)  # what was typed is not lost
            await run.until(lambda: "may I?" in [s.draft for s in run.store.list_sessions()])
            assert run.store.session(session).draft == "their draft"
            await run.screen.commands.open_session(session)
            await run.say("/delete")
            await run.until(lambda: "fork it to go on" in run.screen.flash.text)
            await run.say("/fork")
            await run.until(lambda: run.screen.chat.session not in (session, other))
            assert "(read-only)" not in run.shown()
            await run.say("and now?")
            await run.until(lambda: len(run.screen.chat.turns) == 4)
            await run.reply()
            assert run.store.session(session).deleted_at is None


async def test_a_chat_that_is_free_again_is_read_anew(start: Start) -> None:
    async with start() as run:
        [session] = fill(run, line("Shared", "question", "answer"))
        with Store(run.options.store) as elsewhere:
            elsewhere.claim(session).result()
            await run.screen.commands.open_session(session)
            elsewhere.add_user_message(session, "theirs").result()
        await run.say("mine")
        await run.until(lambda: "can be written to" in run.screen.flash.text)
        assert [t.text for t in run.screen.chat.turns] == ["question", "answer", "theirs"]
        assert run.prompt.text == "mine" and "(read-only)" not in run.shown()
        await run.pilot.press("enter")
        await run.until(lambda: len(run.screen.chat.turns) == 5)
        await run.reply()


async def test_what_is_shown_is_claimed_and_what_is_left_is_free(start: Start) -> None:
    async with without_model(start) as run:
        [one, two] = fill(run, line("One", "x"), line("Two", "x"))
        with Store(run.options.store) as elsewhere:
            await run.screen.commands.open_session(one)
            assert elsewhere.claim(one).result() is not None
            await run.screen.commands.open_session(two)
            await run.until(lambda: elsewhere.claim(one).result() is None)
            assert elsewhere.claim(two).result() is not None
            await run.pilot.press("ctrl+n")
            await run.until(lambda: elsewhere.claim(two).result() is None)


async def test_a_chat_whose_reply_runs_stays_claimed(start: Start) -> None:
    async with start() as run:
        await run.say("hello there")
        await run.until(lambda: run.screen.chat.turns)
        await run.reply()
        session = run.screen.chat.session
        assert session is not None
        with Store(run.options.store) as elsewhere:
            await run.until(lambda: elsewhere.claim(session).result() is not None)


@pytest.mark.parametrize("sign", ["a key", "typing", "the focus", "choosing it again"])
async def test_the_label_goes_with_the_persons_next_sign(start: Start, sign: str) -> None:
    async with without_model(start) as run:
        [session] = fill(run, line("Shared", "question", "answer"))
        with Store(run.options.store) as elsewhere:
            elsewhere.claim(session).result()
            await run.screen.commands.open_session(session)
            assert "(read-only) Shared" in run.shown()
            elsewhere.set_draft(session, "their draft").result()
        shown = [*run.screen.chat.turns]
        if sign == "a key":
            await run.pilot.press("pageup")
        elif sign == "typing":
            await run.pilot.press("x")
        elif sign == "the focus":
            run.app.post_message(AppBlur())
            run.app.post_message(AppFocus())
        else:
            await run.screen.commands.open_session(session)
        await run.until(lambda: "(read-only)" not in run.shown())
        assert run.screen.chat.turns == shown  # nothing was written there: the very same, scrolled as they were
        assert run.prompt.text == ("x" if sign == "typing" else "their draft")
        with Store(run.options.store) as other:
            assert other.claim(session).result() is not None  # it is open here now


async def test_the_label_stays_while_the_other_window_has_the_chat(start: Start) -> None:
    async with without_model(start) as run:
        [session] = fill(run, line("Shared", "question", "answer"))
        with Store(run.options.store) as elsewhere:
            elsewhere.claim(session).result()
            await run.screen.commands.open_session(session)
            run.screen.commands.chats.elsewhere = -1  # a window before that one
            await run.pilot.press("pageup")
            await run.until(lambda: run.screen.commands.chats.elsewhere == os.getpid())
            assert "(read-only) Shared" in run.shown()


async def test_an_edit_is_not_ended_by_what_was_written_elsewhere(start: Start) -> None:
    async with without_model(start) as run:
        [session] = fill(run, line("Shared", "question", "answer"))
        with Store(run.options.store) as elsewhere:
            elsewhere.claim(session).result()
            await run.screen.commands.open_session(session)
            run.screen.turns.edit(run.screen.chat.turns[0])
            elsewhere.add_user_message(session, "theirs").result()
        await run.pilot.press("pageup")
        run.store.flush()
        await run.pilot.pause()
        assert run.screen.turns.editing and run.prompt.text == "question"
        await run.pilot.press("escape")
        await run.until(lambda: "was read anew" in run.screen.flash.text)
        assert [turn.text for turn in run.screen.chat.turns] == ["question", "answer", "theirs"]
        assert "(read-only)" not in run.shown()


async def test_a_chat_that_the_other_window_deleted_is_not_written_to(start: Start) -> None:
    async with without_model(start) as run:
        [session] = fill(run, line("Shared", "question", "answer"))
        with Store(run.options.store) as elsewhere:
            elsewhere.claim(session).result()
            await run.screen.commands.open_session(session)
            elsewhere.delete(session).result()
        await run.pilot.press("pageup")
        await run.until(lambda: "This chat was deleted" in run.screen.flash.text)
        assert "(read-only) Shared" in run.shown()
        await run.screen.commands.chats.restore(session)
        await run.until(lambda: "(read-only)" not in run.shown())
