"""A context that is full: what the screen offers, and what each choice does; on the real engine."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from textual.widgets import OptionList

from strata_tui.config import Settings
from strata_tui.engine.engine import EngineOptions
from strata_tui.sessions.export import Form, export_text
from strata_tui.sessions.rows import Status
from strata_tui.ui.screens.leaving_out import LeavingOutScreen
from strata_tui.ui.screens.room import RoomScreen
from strata_tui.ui.widgets.message_head import branch_text

if TYPE_CHECKING:
    from tests.ui.conftest import Running, Start

WORDS = "the people of water said that their expert could find a long way"
SHORT = Settings(temperature=0.0, max_tokens=8)
SMALL = EngineOptions(gpu=-1, threads=1, context=512)


def words(times: int) -> str:
    return " ".join([WORDS] * times)


async def stored(run: Running, *texts: str) -> list[str]:
    """A chat of these messages, with a reply of the same text to each, is shown; the texts of all."""
    store = run.store
    session = store.create_session(title="long").result()
    for text in texts:
        store.add_user_message(session, text)
        reply = store.begin_reply(session)
        store.finish_reply(reply, Status.DONE, text)
    store.flush()
    await run.screen.commands.open_session(session)
    return [turn.text for turn in run.screen.chat.turns]


async def page(run: Running) -> RoomScreen:
    """The page with the ways, filled."""
    await run.until(lambda: isinstance(run.app.screen, RoomScreen) and run.app.screen.found is not None)
    assert isinstance(run.app.screen, RoomScreen)
    return run.app.screen


async def idle(run: Running) -> None:
    await run.until(lambda: not run.screen.turns.busy and not run.screen.loader.loading)


def way(screen: RoomScreen, number: int) -> str:
    option = screen.query_one(OptionList).get_option_at_index(number - 1)
    return str(option.prompt) + (" [greyed]" if option.disabled else "")


async def test_a_message_that_does_not_fit_is_kept_and_the_ways_are_offered(start: Start) -> None:
    async with start(settings=SHORT, engine=SMALL) as run:
        before = await stored(run, *(f"{n} {words(4)}" for n in range(1, 5)))
        await run.say(f"mine {words(4)}")
        screen = await page(run)
        shown = run.shown()
        assert "The context is full" in shown and "of the context's 512 tokens" in shown
        assert "A larger context: 1 024 tokens" in way(screen, 1) and "KV cache" in way(screen, 1)
        assert "experts in slots (now" in way(screen, 1)
        assert "with messages 3 to 8 of 8" in way(screen, 2) and "From “2 the people" in way(screen, 2)
        assert "oldest that must go are 1 and 2." in way(screen, 3)
        assert not any("greyed" in way(screen, n) for n in (1, 2, 3))
        await run.pilot.press("escape")
        assert run.prompt.text == f"mine {words(4)}"
        assert [t.text for t in run.screen.chat.turns] == before


async def test_a_larger_context_opens_the_model_again(start: Start) -> None:
    async with start(settings=SHORT, engine=SMALL) as run:
        await stored(run, *(words(4) for _ in range(4)))
        await run.say(f"mine {words(4)}")
        await page(run)
        await run.pilot.press("1")
        await run.until(lambda: run.screen.model is not None and run.screen.model.context == 1024)
        assert run.prompt.text.startswith("mine") and "1k ctx" in run.shown()
        await run.pilot.press("end", "enter")
        await run.until(lambda: len(run.screen.chat.turns) == 10)
        await idle(run)
        assert run.screen.chat.turns[-1].text
        model = run.screen.model
        await run.say("/open")  # again: as it was opened last
        await run.until(lambda: run.screen.model is not None and run.screen.model is not model)
        assert run.screen.model is not None and run.screen.model.context == 1024
        await run.say("/room")
        screen = await page(run)
        assert way(screen, 1).endswith("The model was trained for 1024 tokens. [greyed]")


async def test_a_fork_begins_with_what_fits(start: Start) -> None:
    async with start(settings=SHORT, engine=SMALL) as run:
        before = await stored(run, *(f"{n} {words(4)}" for n in range(1, 5)))
        old = run.screen.chat.session
        assert old is not None
        await run.say(f"mine {words(4)}")
        await page(run)
        await run.pilot.press("2")
        await run.until(lambda: run.screen.chat.session != old)
        await run.until(lambda: len(run.screen.chat.turns) == 6)
        assert [t.text for t in run.screen.chat.turns] == before[2:]
        assert run.prompt.text == f"mine {words(4)}"
        assert "left as it is" in run.screen.flash.text
        await run.pilot.press("end", "enter")
        await run.until(lambda: len(run.screen.chat.turns) == 8)
        await idle(run)
        assert run.screen.chat.turns[-1].text
        assert [m.text for m in run.store.branch(old)] == before


async def test_messages_are_left_out_marked_and_taken_back(start: Start) -> None:
    async with start(settings=SHORT, engine=SMALL) as run:
        before = await stored(run, *(f"{n} {words(4)}" for n in range(1, 5)))
        session = run.screen.chat.session
        assert session is not None
        await run.say(f"mine {words(4)}")
        await page(run)
        await run.pilot.press("3")
        await run.until(lambda: isinstance(run.app.screen, LeavingOutScreen))
        await run.until(lambda: "left for a reply" in run.shown())
        shown = run.shown()
        lines = [line for line in shown.splitlines() if "the people" in line and "tok" in line]
        assert [("not sent" in line) for line in lines] == [True, True] + [False] * 6
        assert "54 tok" in lines[0] and "  1  not sent  You" in lines[0] and "Reply" in lines[1]
        await run.pilot.press("down", "space")  # the first reply, and its message: sent after all
        await run.until(lambda: "too many" in run.shown())
        await run.pilot.press("enter")
        assert isinstance(run.app.screen, LeavingOutScreen), "what does not fit is not done"
        await run.pilot.press("down", "down", "x")  # the second exchange in their place, by its reply
        await run.pilot.press("up", "x")
        await run.until(lambda: "left for a reply" in run.shown())
        await run.pilot.press("enter")
        await run.until(lambda: "2 messages are not sent" in run.screen.flash.text)
        assert [t.in_view for t in run.screen.chat.turns] == [True, True, False, False, True, True, True, True]
        assert [m.sent for m in run.store.branch(session)] == [t.in_view for t in run.screen.chat.turns]
        assert [t.text for t in run.screen.chat.turns] == before
        await run.pilot.press("end", "enter")
        await run.until(lambda: len(run.screen.chat.turns) == 10)
        await idle(run)
        stats = run.screen.chat.turns[-1].stats
        assert stats is not None and stats.prompt_tokens < 512 and run.screen.chat.turns[-1].text
        assert all(branch_text(t) == "" for t in run.screen.chat.turns), "what did not fit is no branch of its own"
        assert run.store.session(session).draft == ""
        asked = [m.text for m in run.screen.chat.messages()]
        assert before[0] in asked and before[2] not in asked and before[3] not in asked
        assert "## User (not sent)" in export_text(run.store, session, Form.MARKDOWN, whole=False)
        await run.pilot.press("ctrl+n")
        await run.until(lambda: run.screen.chat.session is None)
        await run.screen.commands.open_session(session)
        assert [t.in_view for t in run.screen.chat.turns][:4] == [True, True, False, False]
        await run.pilot.press("alt+up", "g", "down", "down")
        await run.until(lambda: run.screen.transcript.selected is run.screen.chat.turns[2])
        await run.until(lambda: re.search(r"You *not sent", run.shown()))
        await run.pilot.press("r")
        assert "not sent to the model" in run.screen.flash.text
        await run.pilot.press("x")
        await run.until(lambda: "Sent again" in run.screen.flash.text)
        assert all(t.in_view for t in run.screen.chat.turns) and "not sent" not in run.shown()
        await run.pilot.press("x")
        await run.until(lambda: "Not sent from now on" in run.screen.flash.text)
        assert [m.sent for m in run.store.branch(session)][2:5] == [False, False, True]


async def test_a_reply_that_fills_the_context_can_go_on(start: Start) -> None:
    settings = Settings(temperature=1.5, seed=1)
    async with start(settings=settings, engine=SMALL) as run:
        await stored(run, words(8), words(8))
        await run.say("and now?")
        await run.until(lambda: "/room makes room" in run.screen.flash.text)
        reply = run.screen.chat.turns[-1]
        assert "context of 512 tokens is full" in reply.note and len(run.screen.chat.turns) == 6
        written = reply.text
        await run.say("/room")
        screen = await page(run)
        assert "with messages 3 to 6 of 6" in way(screen, 2)
        await run.pilot.press("3")
        await run.until(lambda: "needed" in run.shown() and "left for a reply" in run.shown())
        await run.pilot.press("end", "space")
        assert "needs this one" in run.shown()
        await run.pilot.press("enter")
        await run.until(lambda: "/continue goes on" in run.screen.flash.text)
        await run.say("/continue")
        await run.until(lambda: len(reply.text) > len(written))
        await run.pilot.press("escape")
        await idle(run)
        assert reply.text.startswith(written)


async def test_ways_that_cannot_be_taken_say_why(start: Start) -> None:
    async with start(settings=SHORT, engine=SMALL) as run:
        await run.say(words(45))
        screen = await page(run)
        assert "A larger context: 1 024 tokens" in way(screen, 1)
        assert way(screen, 2).endswith("There are no earlier messages. [greyed]")
        await run.pilot.press("2")
        assert "no earlier messages." in run.shown() and run.app.screen is screen
        await run.pilot.press("escape")
        assert run.prompt.text == words(45)
        run.prompt.clear()
        await stored(run, "hello")
        await run.say("/room")
        screen = await page(run)
        assert "there is room" in run.shown() and "Room in the context" in run.shown()
        assert way(screen, 2).endswith("not now: All of it fits. [greyed]")
        await run.pilot.press("escape")
        run.prompt.insert(words(45))
        await run.screen.commands.perform("make_room")
        screen = await page(run)
        assert way(screen, 2).endswith("Your message alone takes more than the context holds. [greyed]")
        assert way(screen, 3).endswith("Your message alone takes more than the context holds. [greyed]")


async def test_a_changed_message_that_does_not_fit_stays_a_change(start: Start) -> None:
    async with start(settings=SHORT, engine=SMALL) as run:
        await stored(run, "one", "two")
        turn = run.screen.chat.turns[2]
        await run.screen.commands.perform("edit")
        run.prompt.clear_and_insert(words(45))
        await run.pilot.press("enter")
        screen = await page(run)
        assert "Your message alone" in way(screen, 2), "what it follows is measured, not the whole chat"
        await run.pilot.press("escape")
        assert run.prompt.text == words(45) and run.prompt.border_title == "Edit"
        run.prompt.clear_and_insert("shorter")
        await run.pilot.press("enter")
        await run.until(lambda: run.screen.chat.turns[2].text == "shorter")
        await idle(run)
        assert turn in run.screen.chat.turns[2].siblings


async def test_a_reply_that_ends_before_its_begin_is_shown(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start(settings=SHORT, engine=SMALL) as run:
        refresh = run.screen.transcript.refresh_turns

        async def late(*, follow: bool) -> None:
            while run.screen.replies.running is not None:
                await asyncio.sleep(0.02)
            await refresh(follow=follow)

        monkeypatch.setattr(run.screen.transcript, "refresh_turns", late)
        await run.say(words(45))
        await page(run)
        assert run.prompt.text == words(45)


async def test_room_is_made_between_replies_only(start: Start, slow_engine: EngineOptions) -> None:
    async with start(settings=replace(SHORT, max_tokens=400), engine=slow_engine) as run:
        await run.say("a long answer please")
        await run.until(lambda: run.screen.replies.running and run.screen.replies.running.turn.text)
        await run.say("/room")
        assert "A reply is running" in run.screen.flash.text
        await run.pilot.press("escape")
        await idle(run)


async def test_it_can_be_read_on_a_small_screen(start: Start) -> None:
    async with start(size=(60, 16), settings=SHORT, engine=SMALL) as run:
        await stored(run, *(f"{n} {words(4)}" for n in range(1, 5)))
        await run.say(f"mine {words(4)}")
        await page(run)
        shown = run.shown()
        for text in ("1  A larger context", "2  A new chat", "3  Leave messages out", "esc leaves"):
            assert text in shown
        await run.pilot.press("3")
        await run.until(lambda: "left for a reply" in run.shown())
        assert "enter confirms" in run.shown() and "  1  not sent" in run.shown()


async def test_enter_while_it_is_being_measured_confirms_what_fits(start: Start) -> None:
    async with start(settings=SHORT, engine=SMALL) as run:
        await stored(run, *(f"{n} {words(4)}" for n in range(1, 5)))
        await run.say(f"mine {words(4)}")
        await page(run)
        await run.pilot.press("3")
        await run.until(lambda: isinstance(run.app.screen, LeavingOutScreen))
        screen = run.app.screen
        assert isinstance(screen, LeavingOutScreen)
        screen._count()
        screen.do_leaving_done()
        assert run.app.screen is screen, "it is not known yet whether it fits"
        await run.until(lambda: run.app.screen is not screen)
