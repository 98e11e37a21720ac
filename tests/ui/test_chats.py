"""Going from chat to chat, their titles and drafts, and the list's own keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata_tui.config import read_file
from strata_tui.engine.engine import EngineOptions
from strata_tui.ui.screens.rename import RenameScreen
from strata_tui.ui.widgets.chats_panel import ChatList

from .long_replies import LONG

if TYPE_CHECKING:
    from tests.ui.conftest import Start


async def test_switching_chats_while_a_reply_runs(start: Start, slow_engine: EngineOptions) -> None:
    async with start(settings=LONG, engine=slow_engine) as run:
        await run.say("the first chat")
        await run.until(lambda: run.screen.replies.running and run.screen.replies.running.turn.text)
        first = run.screen.chat
        await run.pilot.press("ctrl+n")
        await run.until(lambda: run.screen.chat is not first)
        assert "the first chat" not in run.shown()
        before = len(first.turns[1].text)
        await run.until(lambda: len(first.turns[1].text) > before)  # it goes on
        assert first.session is not None
        await run.screen.commands.open_session(first.session)
        await run.until(lambda: run.screen.chat is first)
        view = run.screen.transcript.view_of(first.turns[1])
        assert view is not None
        await run.pilot.press("escape")
        await run.reply()
        run.store.flush()
        assert run.store.branch(first.session)[1].text == first.turns[1].text
        assert "stopped" in run.shown()


async def test_delete_asks_nothing_and_can_be_undone(start: Start) -> None:
    async with start() as run:
        await run.say("to be deleted")
        await run.until(lambda: run.screen.chat.turns)
        await run.reply()
        session = run.screen.chat.session
        run.prompt.insert("typed")
        await run.pilot.press("f2")
        await run.until(lambda: run.screen.chats.highlighted == session)
        await run.pilot.press("d")
        await run.until(lambda: run.screen.chat.session is None)
        assert run.store.list_sessions() == []
        assert "/undo" in run.screen.flash.text
        await run.pilot.press("alt+u")
        await run.until(lambda: run.screen.chat.session == session)
        assert len(run.screen.chat.turns) == 2
        assert run.prompt.text == "typed"


async def test_rename_by_command_and_by_key(start: Start) -> None:
    async with start() as run:
        await run.say("/rename Before the first word")
        await run.say("hello")
        await run.until(lambda: run.screen.chat.turns)
        await run.reply()
        assert run.store.list_sessions()[0].title == "Before the first word"
        await run.say("/rename")
        await run.until(lambda: isinstance(run.app.screen, RenameScreen))
        await run.pilot.press("end", *"!", "enter")
        await run.until(lambda: run.screen.chat.title == "Before the first word!")
        assert run.store.list_sessions()[0].title == "Before the first word!"
        assert "Before the first word!" in run.shown()


async def test_drafts_belong_to_their_chats(start: Start) -> None:
    async with start() as run:
        await run.say("one")
        await run.until(lambda: run.screen.chat.turns)
        await run.reply()
        session = run.screen.chat.session
        run.prompt.insert("half a thought")
        await run.pilot.press("ctrl+n")
        await run.until(lambda: run.screen.chat.session is None)
        assert run.prompt.text == ""
        assert session is not None
        await run.screen.commands.open_session(session)
        assert run.prompt.text == "half a thought"
        await run.pilot.press("ctrl+q")
        await run.until(lambda: run.app.return_code is not None)
    async with start(resume=session) as run:
        await run.until(lambda: run.screen.chat.session == session)
        assert run.prompt.text == "half a thought"


async def test_what_is_typed_is_stored_while_it_is_typed(start: Start) -> None:
    async with start(load=False) as run:

        def drafts() -> list[str]:
            return [info.draft for info in run.store.list_sessions()]

        await run.pilot.press(*"/help", "ctrl+c")  # a command is not worth a chat
        run.prompt.insert("half a thought")
        await run.until(lambda: drafts() == ["half a thought"])
        await run.pilot.press("f2")
        await run.until(lambda: "draft: half a thought" in run.shown())
        await run.pilot.press("escape", "ctrl+c")
        await run.until(lambda: drafts() == [""])
        await run.pilot.press("ctrl+n")  # nothing came of it
        await run.until(lambda: drafts() == [])
        run.prompt.insert("and another")
        await run.until(lambda: drafts() == ["and another"])
        session = run.screen.chat.session
    async with start(resume=session, load=False) as run:
        await run.until(lambda: run.prompt.text == "and another")


async def test_the_list_has_its_own_keys(start: Start) -> None:
    async with start(size=(80, 24)) as run:
        await run.say("one chat")
        await run.until(lambda: run.screen.chat.turns)
        await run.reply()
        await run.pilot.press("f2")
        await run.until(lambda: isinstance(run.screen.focused, ChatList))
        await run.pilot.press("n")
        await run.until(lambda: run.screen.chat.session is None)
        await run.pilot.press("escape")
        assert not run.screen.chats.display
        assert run.screen.focused is run.prompt


async def test_beside_the_chat_the_list_is_entered_first_and_hidden_then(start: Start) -> None:
    async with start(size=(170, 40)) as run:
        assert run.screen.chats.display
        await run.pilot.press("f2")
        await run.until(lambda: isinstance(run.screen.focused, ChatList))
        await run.pilot.press("f2")
        await run.until(lambda: not run.screen.chats.display)
        assert run.screen.focused is run.prompt
        await run.until(lambda: run.options.settings_file.exists())
        await run.until(lambda: read_file(run.options.settings_file).sidebar is False)
