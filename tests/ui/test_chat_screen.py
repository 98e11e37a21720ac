"""The whole screen on the real engine and a small random model."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from textual.events import Key
from textual.widgets import Input

from strata_tui.config import Settings, read_file
from strata_tui.engine.engine import EngineOptions
from strata_tui.engine.events import EngineState
from strata_tui.engine.modes import Residency, StagerProfile
from strata_tui.sessions.rows import Role, Status
from strata_tui.term.clipboard import MAX_OSC_BYTES
from strata_tui.text import clean
from strata_tui.ui.screens.rename import RenameScreen
from strata_tui.ui.screens.room import RoomScreen
from strata_tui.ui.screens.text_screen import TextScreen
from strata_tui.ui.widgets.chats_panel import ChatList
from strata_tui.ui.widgets.chunks import Piece

if TYPE_CHECKING:
    from tests.ui.conftest import Start

LONG = Settings(temperature=0.0, max_tokens=400)
EOS_PROOF = "a long answer please"


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


async def test_a_load_that_fails_is_one_sentence_and_the_chats_stay_usable(start: Start, tmp_path: Path) -> None:
    async with start() as run:
        await run.say("kept")
        await run.until(lambda: run.screen.chat.turns)
        await run.reply()
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"PK\x03\x04 something else entirely" * 10)
    async with start(model=broken, load=False) as run:
        await run.until(lambda: run.screen.flash.text)
        assert "broken.gguf" in run.screen.flash.text
        assert "no model" in run.shown()
        await run.say("can you hear me?")
        assert run.prompt.text == "can you hear me?"
        assert "No model is loaded" in run.screen.flash.text
        await run.pilot.press("f2")
        await run.until(lambda: run.screen.chats.highlighted is not None)
        await run.pilot.press("enter")
        await run.until(lambda: run.screen.chat.turns)
        assert "kept" in run.shown()


async def test_a_model_can_be_loaded_after_a_failure(
    start: Start, tmp_path: Path, tiny_model: Callable[[str], Path]
) -> None:
    async with start(model=tmp_path / "missing.gguf", load=False) as run:
        await run.until(lambda: run.screen.flash.text)
        await run.say(f"/open {tiny_model('llama_dense')}")
        await run.loaded()
        assert run.screen.snapshot.model is not None
        assert "dense" in run.shown()


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


async def test_switches_show_what_the_engine_says_and_are_kept(start: Start) -> None:
    async with start() as run:
        generation = run.screen.snapshot.modes and run.screen.snapshot.modes.pool_generation
        await run.pilot.press("f8", "f8")

        def applied() -> bool:
            modes = run.screen.snapshot.modes
            return modes is not None and modes.stager.wanted == "ssd" and not modes.stager.pending

        await run.until(applied)
        modes = run.screen.snapshot.modes
        assert modes is not None and modes.stager.actual == "ssd"
        assert generation is not None and modes.pool_generation > generation
        await run.until(lambda: "ssd" in run.shown())
        await run.say("/stager fast")
        assert "The stager can be auto, ram, ssd; not fast." in run.screen.flash.text
        await run.say("/stager ram")
        await run.until(lambda: run.options.settings_file.exists())
        await run.until(lambda: read_file(run.options.settings_file).stager is StagerProfile.RAM)
        await run.pilot.press("f7")
        await run.until(lambda: "not applicable" in run.shown())


async def test_residency_is_a_switch_too(start: Start) -> None:
    async with start() as run:
        before = run.screen.snapshot.modes
        assert before is not None and before.residency is not None and before.residency.actual == "lru"
        await run.pilot.press("f9")

        def applied(value: str) -> bool:
            state = run.screen.snapshot.modes and run.screen.snapshot.modes.residency
            return state is not None and (state.actual, state.pending) == (value, False)

        await run.until(lambda: applied("adaptive"))
        modes = run.screen.snapshot.modes
        assert modes is not None and modes.pool_generation == before.pool_generation  # the stage pool is left alone
        await run.until(lambda: "0 swaps" in run.shown())
        await run.say("/residency frozen")
        await run.until(lambda: applied("frozen"))
        await run.until(lambda: run.options.settings_file.exists())
        await run.until(lambda: read_file(run.options.settings_file).residency is Residency.FROZEN)
        await run.say("/residency cold")
        assert "Residency can be lru, adaptive, frozen; not cold." in run.screen.flash.text


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
            assert "pinned: mirror" in run.shown()
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


async def test_joiners_that_are_typed_are_kept(start: Start) -> None:
    async with start(load=False) as run:
        for character in "a\u200db\u200cc":
            run.prompt.post_message(Key(character, character))
        await run.until(lambda: run.prompt.text.endswith("c"))
        assert run.prompt.text == "a\u200db\u200cc"


async def test_a_wrong_path_leaves_the_loaded_model(start: Start, tmp_path: Path) -> None:
    async with start() as run:
        model = run.screen.model
        await run.say(f"/open {tmp_path / 'none.gguf'}")
        await run.until(lambda: "none.gguf" in run.screen.flash.text)
        assert run.screen.model is model and not run.screen.loader.loading
        await run.say("/open")
        await run.until(lambda: run.screen.model is not None and run.screen.model is not model)
        assert run.screen.model.path == model.path


async def test_a_command_while_the_program_ends_is_nothing(start: Start) -> None:
    async with start() as run:
        run.screen.leave()
        await run.screen.commands.perform("open", "/none.gguf")
        await run.until(lambda: run.app.return_code is not None)
        assert run.app.return_code == 0
