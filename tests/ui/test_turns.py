"""Branches, replies again, the queue and forks on the real engine and a small random model."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from strata_tui.config import Settings
from strata_tui.engine.engine import EngineOptions
from strata_tui.sessions.rows import Role, Status
from strata_tui.sessions.store import Store
from strata_tui.ui.chat import Turn
from strata_tui.ui.widgets.message_head import branch_text

if TYPE_CHECKING:
    from tests.ui.conftest import Running, Start

LONG = Settings(temperature=0.0, max_tokens=400)
SHORT = Settings(temperature=0.0, max_tokens=12)


async def asked(run: Running, *texts: str) -> None:
    """Sends messages one after the other and waits for each reply."""
    for text in texts:
        count = len(run.screen.chat.turns)
        await run.say(text)
        await run.until(lambda count=count: len(run.screen.chat.turns) == count + 2)
        await idle(run)


async def idle(run: Running) -> None:
    await run.until(lambda: not run.screen.turns.busy)


async def writing(run: Running) -> Turn:
    await run.until(lambda: run.screen.replies.running and run.screen.replies.running.turn.text)
    running = run.screen.replies.running
    assert running is not None
    return running.turn


def texts(run: Running) -> list[str]:
    return [t.text for t in run.screen.chat.turns if t.role is Role.USER]


def session_of(run: Running) -> int:
    session = run.screen.chat.session
    assert session is not None
    return session


async def test_edit_and_resend_makes_a_branch(start: Start) -> None:
    async with start(settings=SHORT) as run:
        await asked(run, "one", "two")
        first = list(run.screen.chat.turns)
        await run.pilot.press("up")
        assert run.screen.transcript.selected is first[2]
        await run.pilot.press("up", "up", "e")
        assert run.prompt.text == "one" and run.prompt.border_title == "Edit" and run.prompt.has_focus
        await run.pilot.press("end", *" again", "enter")
        await run.until(lambda: texts(run) == ["one again"])
        await idle(run)
        assert run.prompt.text == "" and run.prompt.border_title == "Prompt"
        assert branch_text(run.screen.chat.turns[0]) == "‹ 2 of 2 ›" and "‹ 2 of 2 ›" in run.shown()
        run.store.flush()
        tree = run.store.tree(session_of(run))
        assert [m.text for m in tree.children(None)] == ["one", "one again"]
        assert len(run.store.branch(session_of(run))) == 2
        await run.pilot.press("up", "left_square_bracket")
        await run.until(lambda: run.screen.chat.turns == first)
        assert run.screen.transcript.selected is first[0]
        assert "‹ 1 of 2 ›" in run.shown()
        await run.pilot.press("left")
        assert "first of 2 branches" in run.screen.flash.text
        run.store.flush()
        assert [m.text for m in run.store.branch(session_of(run))] == [t.text for t in first]
        await run.pilot.press("i")
        await run.say("/branch")
        await run.until(lambda: texts(run) == ["one again"])


async def test_leaving_an_edit_brings_back_what_was_typed(start: Start) -> None:
    async with start(settings=SHORT) as run:
        await asked(run, "one")
        run.prompt.insert("half a thought")
        await run.say("/edit")  # not a command: the prompt was not empty
        await run.until(lambda: len(run.screen.chat.turns) == 4)
        await idle(run)
        run.prompt.insert("half a thought")
        await run.screen.commands.perform("edit")
        assert run.prompt.text == "half a thought/edit"
        await run.pilot.press("end", "x", "escape")
        assert run.prompt.text == "half a thought" and run.prompt.border_title == "Prompt"
        await run.pilot.press("ctrl+z")
        assert run.prompt.text == "half a thought/editx"
        assert len(run.screen.chat.turns) == 4


async def test_regenerate_keeps_the_other_reply(start: Start) -> None:
    async with start(settings=replace(SHORT, temperature=1.5)) as run:
        await asked(run, "one", "two")
        old = run.screen.chat.turns[3]
        await run.pilot.press("alt+r")
        await run.until(lambda: run.screen.chat.turns[3] is not old)
        await idle(run)
        new = run.screen.chat.turns[3]
        assert texts(run) == ["one", "two"] and new.siblings == [old, new]
        assert "‹ 2 of 2 ›" in run.shown()
        await run.pilot.press("alt+up", "k", "k", "r")  # the first reply again: the messages below are another branch
        await run.until(lambda: len(run.screen.chat.turns) == 2)
        await idle(run)
        run.store.flush()
        tree = run.store.tree(session_of(run))
        replies = [m for m in run.store.messages(session_of(run)) if m.role is Role.ASSISTANT]
        assert len(replies) == 4 and len(tree.leaves()) == 3
        assert all(m.reply_stats is not None and m.reply_stats.reply_tokens for m in replies)
        await run.screen.turns.switch(run.screen.chat.turns[1], -1)
        assert run.screen.chat.turns[3] is new  # the branch that was shown last


async def test_a_stored_chat_shows_its_branches(start: Start) -> None:
    async with start(settings=SHORT) as run:
        await asked(run, "one")
        await run.say("/regen")
        await run.until(lambda: len(run.screen.chat.turns[0].below) == 2)
        await idle(run)
        assert run.screen.flash.text.endswith("the same again; alt+o opens the options.")
        session = session_of(run)
        await run.pilot.press("ctrl+n")
        await run.until(lambda: run.screen.chat.session is None)
        await run.until(lambda: re.search(r"ctx ░+ –", run.shown()))
        await run.screen.commands.open_session(session)
        await run.until(lambda: re.search(r"ctx \S+ +\d+ %", run.shown()))
        assert [branch_text(t) for t in run.screen.chat.turns] == ["", "‹ 2 of 2 ›"]
        await run.say("/branch 1")
        await run.until(lambda: branch_text(run.screen.chat.turns[1]) == "‹ 1 of 2 ›")
        await run.until(lambda: run.screen.flash.text == "Branch 1 of 2.")
        await run.say("/branch 7")
        assert "from 1 to 2" in run.screen.flash.text


async def test_a_reply_that_was_cut_off_goes_on(start: Start) -> None:
    async with start(settings=replace(SHORT, max_tokens=36)) as run:
        await asked(run, "one")
        whole = run.screen.chat.turns[1].text
    async with start(settings=SHORT) as run:
        await asked(run, "one")
        turn = run.screen.chat.turns[1]
        for part in (24, 36):
            await run.say("/continue")
            await run.until(lambda part=part: turn.stats is not None and turn.stats.reply_tokens == part)
            await idle(run)
        assert run.screen.chat.turns[1] is turn and turn.text == whole and turn.status is Status.DONE
        assert turn.stats is not None and len(turn.stats.each) == 3
        run.store.flush()
        [_, row] = run.store.messages(session_of(run))
        assert (row.text, row.status, row.reply_stats) == (whole, Status.DONE, turn.stats)
        await asked(run, "two")
        await run.screen.commands.perform("messages")
        await run.pilot.press("k", "k", "m")  # in the middle of a chat it becomes a branch
        await run.until(lambda: len(run.screen.chat.turns) == 2)
        await idle(run)
        longer = run.screen.chat.turns[1]
        assert longer.siblings == [turn, longer] and longer.text.startswith(whole) and turn.text == whole


async def test_a_stopped_reply_goes_on_and_can_be_stopped_again(start: Start, slow_engine: EngineOptions) -> None:
    async with start(settings=LONG, engine=slow_engine) as run:
        await run.say("a long answer please")
        turn = await writing(run)
        await run.pilot.press("escape")
        await idle(run)
        assert turn.status is Status.STOPPED
        before, first = turn.text, turn.stats
        await run.say("/continue")
        await run.until(lambda: turn.live and len(turn.text) > len(before))
        run.store.flush()
        assert run.store.messages(session_of(run))[1].status is Status.RUNNING
        await run.pilot.press("escape")
        await idle(run)
        assert turn.status is Status.STOPPED and turn.text.startswith(before)
        assert first is not None and turn.stats is not None and turn.stats.reply_tokens > first.reply_tokens
        run.store.flush()
        row = run.store.messages(session_of(run))[1]
        assert (row.status, row.text, row.reply_stats) == (Status.STOPPED, turn.text, turn.stats)


async def test_a_reply_that_does_not_fit_leaves_the_branch_before(start: Start) -> None:
    async with start(settings=SHORT) as run:
        await asked(run, "one", "two")
        shown = list(run.screen.chat.turns)
        await run.screen.commands.perform("edit")
        long = "words and more words " * 400
        run.prompt.clear_and_insert(long)
        await run.pilot.press("enter")
        await run.until(lambda: run.screen.flash.text)
        await idle(run)
        assert run.screen.chat.turns == shown
        assert run.prompt.text == long.strip()
        run.store.flush()
        assert [m.id for m in run.store.branch(session_of(run))][-1] == max(
            m.id for m in run.store.messages(session_of(run)) if m.text == shown[-1].text
        )


async def test_messages_wait_for_the_reply_and_can_be_taken_back(start: Start, slow_engine: EngineOptions) -> None:
    async with start(settings=LONG, engine=slow_engine) as run:
        await run.say("a long answer please")
        await writing(run)
        await run.until(lambda: "generating, esc stops" in run.shown())
        await run.say("second")
        await run.say("third")
        assert texts(run) == ["a long answer please"] and run.prompt.text == ""
        assert "queued: second" in run.shown() and "esc takes the last back" in run.shown()
        await run.until(lambda: "generating" in run.shown() and "esc stops" not in run.shown())
        run.store.flush()
        assert run.store.session(session_of(run)).draft == "second\n\nthird"  # a crash does not lose them
        await run.pilot.press("escape")
        assert run.prompt.text == "third" and run.screen.replies.running
        assert "Taken back" in run.screen.flash.text
        await run.pilot.press("ctrl+c")  # stops: what waits comes next
        await run.until(lambda: texts(run) == ["a long answer please", "second"])
        await writing(run)
        assert not run.screen.queued.display
        turns = run.screen.chat.turns
        assert turns[1].status is Status.STOPPED and turns[2].above is turns[1]
        assert run.prompt.text == "third"
        run.prompt.clear()
        await run.say("up brings me back")
        await run.pilot.press("up")
        assert run.prompt.text == "up brings me back"
        await run.pilot.press("escape")
        await idle(run)
        run.store.flush()
        assert [m.text for m in run.store.branch(session_of(run))][::2] == ["a long answer please", "second"]


async def test_a_message_waits_in_its_own_chat(start: Start, slow_engine: EngineOptions) -> None:
    async with start(settings=replace(LONG, max_tokens=12), engine=slow_engine) as run:
        await run.say("the first chat")
        await writing(run)
        first = run.screen.chat
        await run.pilot.press("ctrl+n")
        await run.until(lambda: run.screen.chat is not first)
        await run.say("the second chat")
        second = run.screen.chat
        assert run.screen.queued.display and not second.turns
        run.prompt.insert("typed in the second")
        assert first.session is not None
        await run.screen.commands.open_session(first.session)
        assert run.screen.chat is first and not run.screen.queued.display
        await run.until(lambda: second.turns)
        assert second.session is not None
        await run.until(lambda: len(second.turns) == 2 and second.turns[1].text)
        await run.screen.commands.open_session(second.session)
        assert run.screen.chat is second and run.prompt.text == "typed in the second"
        await idle(run)
        run.store.flush()
        assert [m.text for m in run.store.branch(second.session)] == [t.text for t in second.turns]


async def test_a_message_waits_for_the_model(start: Start) -> None:
    async with start(settings=SHORT, load=False) as run:
        run.screen.loader.loading = True  # it is, but may be through already
        await run.say("early")
        run.screen.loader.loading = run.screen.model is None
        if run.screen.model is not None:
            run.screen.turns.go_ahead()
        await run.until(lambda: len(run.screen.chat.turns) == 2)
        await idle(run)
        assert texts(run) == ["early"]


async def test_a_stop_before_the_engine_has_the_message_counts(start: Start, slow_engine: EngineOptions) -> None:
    async with start(settings=LONG, engine=slow_engine) as run:
        run.screen.turns.submit("a long answer please")
        await run.until(lambda: run.screen.replies.busy)
        assert run.screen.replies.stop()
        await idle(run)
        assert [t.status for t in run.screen.chat.turns] == [Status.DONE, Status.STOPPED]
        await run.say("/continue")  # there was nothing yet: it begins
        turn = await writing(run)
        assert turn is run.screen.chat.turns[1]
        await run.pilot.press("escape")
        await idle(run)


async def test_a_stop_while_the_prompt_is_read_keeps_the_message(start: Start) -> None:
    slow = EngineOptions(gpu=-1, threads=1, context=512, slots=8, batch=8, copy_delay_us=3000)
    async with start(settings=SHORT, engine=slow) as run:
        await run.say(" ".join(["the people of water said"] * 50))
        await run.until(lambda: run.screen.replies.running and run.screen.replies.running.prompt)
        await run.until(lambda: "reading prompt" in run.shown())
        await run.pilot.press("escape")
        await idle(run)
        message, reply = run.screen.chat.turns
        assert reply.status is Status.STOPPED and reply.text == "" and "stopped" in run.shown()
        run.store.flush()
        assert [(m.text, m.status) for m in run.store.branch(session_of(run))] == [
            (message.text, Status.DONE),
            ("", Status.STOPPED),
        ]


async def test_a_stop_while_a_reply_that_goes_on_reads_keeps_what_it_had(start: Start) -> None:
    slow = EngineOptions(gpu=-1, threads=1, context=512, slots=8, batch=8, copy_delay_us=3000)
    async with start(settings=SHORT, engine=slow) as run:
        words = " ".join(["the people of water said"] * 40)
        session = run.store.create_session().result()
        run.store.add_user_message(session, "one")
        reply = run.store.begin_reply(session)
        run.store.finish_reply(reply, Status.STOPPED, words, "a thought").result()
        await run.screen.commands.open_session(session)
        await run.say("/continue")
        await run.until(lambda: run.screen.replies.running and run.screen.replies.running.prompt)
        await run.pilot.press("escape")
        await idle(run)
        turn = run.screen.chat.turns[1]
        assert (turn.text, turn.thinking, turn.status) == (words, "a thought", Status.STOPPED)
        run.store.flush()
        assert [(m.text, m.thinking) for m in run.store.branch(session)][1] == (words, "a thought")


async def test_a_stop_while_the_model_loads(start: Start) -> None:
    slow = EngineOptions(gpu=-1, threads=1, context=512, slots=64, copy_delay_us=40_000)  # filling the slots lasts
    async with start(settings=SHORT, engine=slow, load=False) as run:
        await run.say("waits for the model")
        await run.until(lambda: "filling" in run.shown())
        await run.pilot.press("escape")  # what waits comes back first
        assert run.prompt.text == "waits for the model"
        await run.pilot.press("escape")
        await run.until(lambda: "The load was stopped" in run.screen.flash.text)
        assert run.screen.model is None and not run.screen.loader.loading
        assert run.prompt.text == "waits for the model"


async def test_a_fork_is_a_chat_of_its_own(start: Start) -> None:
    async with start(settings=SHORT) as run:
        await asked(run, "one", "two")
        chat = run.screen.chat
        await run.pilot.press("alt+up", "k", "k", "f")
        await run.until(lambda: run.screen.chat is not chat)
        await run.until(lambda: len(run.screen.chat.turns) == 2)
        assert [t.text for t in run.screen.chat.turns] == [t.text for t in chat.turns[:2]]
        assert run.screen.chat.turns[1].stats == chat.turns[1].stats
        await asked(run, "another way")
        assert chat.session is not None
        assert [m.text for m in run.store.branch(chat.session)] == [t.text for t in chat.turns]


async def test_up_goes_to_the_messages_only_out_of_an_empty_prompt(start: Start) -> None:
    async with start(settings=SHORT) as run:
        await run.pilot.press("up")  # no message in this chat, none in any other
        assert run.prompt.has_focus and run.prompt.text == ""
        await asked(run, "one", "two")
        await run.pilot.press(*"new", "up")
        assert run.prompt.text == "two"
        await run.pilot.press("up")
        assert run.prompt.text == "one"
        await run.pilot.press("down", "down")
        assert run.prompt.text == "new"
        run.prompt.clear()
        await run.pilot.press("up")
        assert run.screen.transcript.selected is run.screen.chat.turns[2]
        await run.pilot.press("i", "ctrl+up")
        assert run.prompt.has_focus and run.prompt.text == "two"
        await run.pilot.press("ctrl+up", "ctrl+down", "ctrl+down")
        assert run.prompt.text == ""
        await run.pilot.press("ctrl+n", "up")
        await run.until(lambda: run.prompt.text == "two")


async def test_a_found_message_of_another_branch_is_shown(start: Start) -> None:
    async with start(settings=SHORT) as run:
        await asked(run, "one")
        first = list(run.screen.chat.turns)
        await run.screen.commands.perform("edit")
        run.prompt.clear_and_insert("other")
        await run.pilot.press("enter")
        await run.until(lambda: texts(run) == ["other"])
        await idle(run)
        session = session_of(run)
        run.store.flush()
        old = run.store.tree(session).children(None)[0]
        await run.screen.commands.chats.open(session, old.id)
        assert run.screen.chat.turns == first
        await run.pilot.press("ctrl+n")
        await run.until(lambda: run.screen.chat.session is None)
        await run.screen.commands.chats.open(session, run.store.tree(session).children(None)[1].id)
        assert texts(run) == ["other"]


async def test_a_chat_open_elsewhere_shows_its_branches_but_changes_none(start: Start) -> None:
    async with start(settings=SHORT) as run:
        await asked(run, "one")
        await run.say("/regen")
        await run.until(lambda: len(run.screen.chat.turns[0].below) == 2)
        await idle(run)
        session = session_of(run)
        await run.pilot.press("ctrl+n")
        await run.until(lambda: run.screen.chat.session is None)
        with Store(run.options.store) as other:
            await run.until(lambda: other.claim(session).result() is None)  # this window has given it up
            await run.screen.commands.open_session(session)
            leaf = run.store.session(session).leaf
            await run.say("/branch 1")
            await run.until(lambda: branch_text(run.screen.chat.turns[1]) == "‹ 1 of 2 ›")
            run.store.flush()
            assert run.store.session(session).leaf == leaf
            for command in ("/regen", "/continue"):
                await run.say(command)
                assert "open in another window" in run.screen.flash.text


async def test_keys_that_need_a_reply_say_so(start: Start) -> None:
    async with start(settings=SHORT) as run:
        for command in ("/regen", "/continue"):
            await run.say(command)
            assert "no messages" in run.screen.flash.text, command
        await run.say("/edit")
        assert "no message of yours" in run.screen.flash.text
        await run.say("/branch")
        assert "one branch only" in run.screen.flash.text
        await run.pilot.press("up")  # nothing to select
        assert run.prompt.has_focus
        run.prompt.clear()  # of the last command
        await asked(run, "one")
        await run.pilot.press("up", "m")
        assert "Only a reply" in run.screen.flash.text
        await run.pilot.press("down", "e")
        assert "Only your own" in run.screen.flash.text
        await run.pilot.press("right_square_bracket")
        assert "no other branch" in run.screen.flash.text
        await run.pilot.press("up")
        assert run.screen.flash.text == ""
        await run.pilot.press("down", "c")
        assert "no code" in run.screen.flash.text
        await run.pilot.press("down")  # out of the messages again
        assert run.prompt.has_focus and run.screen.transcript.selected is None
