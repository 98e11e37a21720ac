"""Keys of the settings file, and what the terminal's keys mean."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from textual.events import Key

from strata_tui.sections import Sections
from strata_tui.ui.actions import ACTIONS, BY_ID
from strata_tui.ui.help_text import help_text
from strata_tui.ui.keymap import DEFAULT, key_of, resolve_keys
from strata_tui.ui.screens.keys import KeysScreen
from strata_tui.ui.screens.log import LogScreen
from strata_tui.ui.screens.text_screen import TextScreen
from strata_tui.ui.welcome_text import welcome_text

if TYPE_CHECKING:
    from tests.ui.conftest import Start


def test_without_settings_the_tables_keys_count() -> None:
    assert DEFAULT.keys == {a.id: a.keys for a in ACTIONS}
    assert DEFAULT.problems == DEFAULT.notes == () and DEFAULT.textual() == {}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("F5", "f5"),
        ("Ctrl-X", "ctrl+x"),
        ("^x", "ctrl+x"),
        ("shift+alt+Up", "alt+shift+up"),
        ("Esc", "escape"),
        ("?", "question_mark"),
        ("G", "G"),
        ("ctrl+", ""),
        ("hyperspace+x", ""),
        ("two words", ""),
        ("", ""),
    ],
)
def test_spellings_of_keys(text: str, key: str) -> None:
    assert key_of(text) == key


def test_a_chosen_key_is_taken_from_where_it_was() -> None:
    keymap = resolve_keys({"chats": ("f4", "ctrl+e"), "think": ()})
    assert keymap.of("chats") == ("f4", "ctrl+e")
    assert keymap.of("engine") == ("alt+e",) and keymap.of("think") == ()
    assert keymap.notes == ("keys.chats: f4 no longer means engine (Show or hide the engine panel).",)
    assert keymap.problems == ()
    assert keymap.chosen == {"f4": "chats", "ctrl+e": "chats"}
    assert keymap.textual() == {"chats": "f4,ctrl+e", "engine": "alt+e", "think": "unbound"}


def test_two_actions_may_change_keys() -> None:
    keymap = resolve_keys({"send": ("ctrl+j",), "new_line": ("enter",)})
    assert (keymap.of("send"), keymap.of("new_line")) == (("ctrl+j",), ("enter",))
    assert keymap.problems == keymap.notes == ()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"chatz": ("f5",)}, "keys.chatz: there is no action of this id"),
        ({"chats": ("x y",)}, "keys.chats: x y is no key; /keys shows what a key is called."),
        ({"chats": ("ctrl+i",)}, "keys.chats: ctrl+i cannot be told from tab."),
        ({"chats": ("x",)}, "keys.chats: x would be typed into the prompt"),
        ({"chats": ("?",)}, "keys.chats: ? would be typed into the prompt"),
        ({"chats": ("f5",), "help": ("f5",)}, "keys.help: f5 is chosen for chats already; it stays there."),
    ],
)
def test_what_cannot_be_is_said(given: dict[str, tuple[str, ...]], problem: str) -> None:
    keymap = resolve_keys(given)
    [said] = keymap.problems
    assert said.startswith(problem)
    assert problem in help_text(keymap, settings=Path("settings.toml")).plain


def test_the_same_key_may_be_used_where_both_cannot_count() -> None:
    keymap = resolve_keys({"message_up": ("u",), "log_up": ("u",)})
    assert keymap.problems == () and keymap.of("undelete_chat") == ("u",)
    assert resolve_keys({"message_up": ("f2",)}).of("chats") == ("alt+s",)


async def test_changed_keys_do_what_they_say(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    sections = Sections(
        keys={"help": ("ctrl+e",), "send": ("ctrl+j",), "new_line": ("enter",), "quit": ("f10",), "nothing": ("f6",)}
    )
    async with start(sections=sections, size=(160, 40)) as run:
        assert "keys.nothing: there is no action of this id" in run.screen.flash.text
        assert [r.message for r in caplog.records if r.name == "strata_tui.ui.app"] == [
            "keys.nothing: there is no action of this id; /help lists them."
        ]
        await run.pilot.press(*"one", "enter", *"two", "ctrl+e")  # which the text area has for the line's end
        await run.until(lambda: isinstance(run.app.screen, TextScreen))
        assert "keys.nothing" in run.shown()
        await run.pilot.press("escape", "f1")
        assert run.app.screen is run.screen
        await run.pilot.press("ctrl+q")
        assert not run.screen.leaving
        await run.pilot.press("ctrl+j")
        await run.until(lambda: run.screen.chat.turns)
        assert run.screen.chat.turns[0].text == "one\ntwo"
        await run.reply()
        assert "^j send" in run.shown()


async def test_keys_of_pages_and_lists_can_be_changed(start: Start) -> None:
    sections = Sections(keys={"text_close": ("z",), "bin_remove": ("r",), "list_down": ("n",), "chats_down": ("s",)})
    async with start(sections=sections, load=False) as run:
        for title in ("one", "two"):
            run.store.create_session(title=title).result()
        await run.pilot.press("f1", "q")
        assert isinstance(run.app.screen, TextScreen)
        await run.pilot.press("z", "f2", "s", "d")
        await run.until(lambda: [s.title for s in run.store.list_sessions(deleted=True)] == ["one"])
        await run.pilot.press("k", "d")
        await run.until(lambda: not run.store.list_sessions())
        await run.pilot.press("b", "n", "r")
        await run.until(lambda: "again: this chat is gone" in run.shown())
        await run.pilot.press("r")
        await run.until(lambda: [s.title for s in run.store.list_sessions(deleted=True)] == ["two"])


def test_a_clash_between_a_page_and_its_list_is_seen() -> None:
    keymap = resolve_keys({"options_next": ("j",)})
    assert keymap.of("list_down") == ("down",) and keymap.problems == ()
    assert keymap.notes == ("keys.options_next: j no longer means list_down (Down).",)


async def test_keys_are_shown_as_they_arrive(start: Start) -> None:
    async with start(load=False) as run:
        await run.say("/keys")
        await run.until(lambda: isinstance(run.app.screen, KeysScreen))
        await run.until(lambda: 'export = "f5"' in run.shown())
        assert str(run.options.settings_file)[:20] in run.shown()
        await run.pilot.press("f2", "x", "ctrl+q")
        run.app.post_message(Key("shift+enter", None))
        await run.pilot.press("escape")
        shown = run.shown()
        for part in ("f2", "Go to the chats", "Types 'x'", "ctrl+q", "shift+enter", "start a new line", "escape"):
            assert part in shown, part
        meanings = ["On the attachments: remove it", "In the transcript: leave it out, or send it again"]
        assert run.screen.commands.meaning("x") == meanings
        lines = [strip.text.strip(" ┃") for strip in run.app.screen._compositor.render_strips()]
        first = next(n for n, line in enumerate(lines) if line.startswith("x "))
        assert lines[first].split(maxsplit=1)[1] == meanings[0]
        assert lines[first + 1 : first + 3] == [meanings[1], "Types 'x'"]
        assert not run.screen.leaving
        await run.pilot.press(*"xxxxxxxxxxxx", "f2")
        assert "Go to the chats" in run.shown(), "the last one is in view"
        await run.pilot.press("a", "escape", "escape")
        assert run.app.screen is run.screen


async def test_the_log_is_filtered_and_copied(start: Start) -> None:
    async with start(engine_log=True) as run:
        log = run.options.engine.log
        assert log is not None
        with log.open("a") as file:
            file.write("2026-01-02 03:04:05,678 ERROR it broke\nTraceback\n  deep inside\n")
        await run.pilot.press("f12")
        await run.until(lambda: "it broke" in run.shown())
        assert "opened:" in run.shown() and "  deep inside" in run.shown()
        await run.pilot.press("f12", "f12")
        await run.until(lambda: "from ERROR on" in run.shown())
        assert "opened:" not in run.shown() and "  deep inside" in run.shown()
        await run.pilot.press("y")
        await run.until(lambda: run.app.clipboard)
        assert run.app.clipboard.splitlines()[0] == "03:04:05 ERROR   it broke"
        await run.until(lambda: "lines: " in run.shown())  # and where they are now
        await run.pilot.press("escape")
        assert not isinstance(run.app.screen, LogScreen)


async def test_there_may_be_no_log(start: Start) -> None:
    async with start(load=False) as run:
        await run.say("/log")
        await run.until(lambda: "keeps no log here" in run.shown())


async def test_a_test_terminal_has_no_mouse(start: Start) -> None:
    async with start(load=False) as run:
        await run.say("/mouse perhaps")
        assert "can be on or off; not perhaps" in run.screen.flash.text
        await run.say("/mouse off")
        assert "cannot be turned on or off here" in run.screen.flash.text


def test_every_key_of_the_table_is_spelled_as_textual_does() -> None:
    for action in ACTIONS:
        for key in action.keys:
            assert key_of(key) == key, (action.id, key)
    assert BY_ID["redraw"].keys == ("ctrl+l",)


async def test_the_palette_finds_the_settings(start: Start) -> None:
    async with start(load=False) as run:
        await run.pilot.press("ctrl+p", *"settings")
        await run.until(lambda: "settings file" in run.shown())
        await run.pilot.press("enter")
        await run.until(lambda: isinstance(run.app.screen, TextScreen))


def test_the_welcome_names_the_keys_in_force() -> None:
    for given, key in ((("f3",), "(f3)"), ((), "(/chats)")):
        text = welcome_text(None, False, (), Path("chats"), 80, resolve_keys({"chats": given})).plain
        assert f"the chats can be read {key}" in text
