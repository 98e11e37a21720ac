from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from strata_tui.ui.actions import ACTIONS, BY_SLASH, Where, as_message, bindings, completions, key_name, parse_slash
from strata_tui.ui.commands import Commands
from strata_tui.ui.help_text import help_text
from strata_tui.ui.screens.bin import BinScreen
from strata_tui.ui.screens.code_picker import CodePicker
from strata_tui.ui.screens.edit_screen import EditScreen
from strata_tui.ui.screens.export import ExportScreen
from strata_tui.ui.screens.leaving_out import LeavingOutScreen
from strata_tui.ui.screens.log import LogScreen
from strata_tui.ui.screens.models import ModelsScreen
from strata_tui.ui.screens.options import OptionsScreen
from strata_tui.ui.screens.room import RoomScreen
from strata_tui.ui.screens.search import SearchScreen
from strata_tui.ui.screens.text_screen import TextScreen

NEVER_ARRIVE = {"ctrl+h", "ctrl+i", "ctrl+m", "ctrl+a", "ctrl+b", "ctrl+tab", "f10", "f11"}


def test_ids_and_slash_names_are_unique() -> None:
    assert not [name for name, n in Counter(a.id for a in ACTIONS).items() if n > 1]
    assert not [name for name, n in Counter(a.slash for a in ACTIONS if a.slash).items() if n > 1]


def test_no_key_means_two_things_in_one_place() -> None:
    for where in Where:
        places = (where, *where.around)
        keys = [key for a in ACTIONS if a.where in places for key in a.keys]
        assert not [key for key, n in Counter(keys).items() if n > 1], where


def test_no_key_that_terminals_swallow() -> None:
    keys = {key for a in ACTIONS for key in a.keys}
    assert not keys & NEVER_ARRIVE
    assert not [k for k in keys if k.startswith("ctrl+shift+") or (k.startswith("alt+") and k[4:].isdigit())]


def test_every_action_can_be_done() -> None:
    doers = {
        Where.PAGES: OptionsScreen,
        Where.OPTIONS: OptionsScreen,
        Where.EDIT: EditScreen,
        Where.MODELS: ModelsScreen,
        Where.LOG: LogScreen,
        Where.ROOM: RoomScreen,
        Where.LEAVING_OUT: LeavingOutScreen,
        Where.TEXT: TextScreen,
        Where.LISTS: CodePicker,
        Where.BIN: BinScreen,
        Where.EXPORT: ExportScreen,
        Where.SEARCH: SearchScreen,
    }
    missing = [a.id for a in ACTIONS if not callable(getattr(doers.get(a.where, Commands), f"do_{a.id}", None))]
    assert missing == []


def test_the_usual_keys() -> None:
    keys = {key: binding.id for binding in bindings(Where.CHAT) for key in binding.key.split(",")}
    expected = {
        "f1": "help",
        "f2": "chats",
        "f4": "engine",
        "f7": "pin",
        "f8": "stager",
        "f9": "residency",
        "escape": "stop",
        "ctrl+c": "interrupt",
        "ctrl+n": "new",
        "ctrl+q": "quit",
        "ctrl+p": "palette",
        "alt+x": "export",
        "alt+y": "copy",
    }
    assert {key: keys.get(key) for key in expected} == expected


def test_the_slash_commands() -> None:
    wanted = "new rename delete export copy pin stager residency quit help engine chats stop".split()
    assert [name for name in wanted if name not in BY_SLASH] == []


def test_every_action_has_two_routes_or_is_a_comfort() -> None:
    alone = [a.id for a in ACTIONS if a.where is Where.CHAT and a.palette and not (a.slash and a.palette)]
    assert alone == []


@pytest.mark.parametrize(
    ("text", "id", "argument"),
    [
        ("/new", "new", ""),
        ("  /NEW  ", "new", ""),
        ("/rename  A better title ", "rename", "A better title"),
        ("/pin off", "pin", "off"),
        ("/", "palette", ""),
    ],
)
def test_commands(text: str, id: str, argument: str) -> None:
    command = parse_slash(text)
    assert command is not None and command.action is not None
    assert (command.action.id, command.argument) == (id, argument)


def test_an_unknown_command_is_no_message() -> None:
    command = parse_slash("/renmae x")
    assert command is not None and command.action is None and command.name == "/renmae"


@pytest.mark.parametrize("text", ["hello", "/etc/fstab is odd", "//new", "/new\nand more", "a /new"])
def test_messages(text: str) -> None:
    assert parse_slash(text) is None


def test_two_slashes_become_one() -> None:
    assert as_message("//new\n") == "/new"
    assert as_message(" // is a comment ") == "// is a comment"


def test_completions() -> None:
    assert [a.slash for a in completions("/e")] == ["edit", "editor", "end", "engine", "export"]
    assert len(completions("/")) == len(BY_SLASH)
    assert completions("hello") == completions("/etc/") == completions("") == []


def test_help_names_everything() -> None:
    text = help_text(settings=Path("/there/settings.toml")).plain
    assert "/there/settings.toml" in text and "/there/themes" in text and '\n  [keys]\n  export = "' in text
    for action in ACTIONS:
        for part in (*(key_name(k) for k in action.keys), action.usage, *action.label.split()):
            assert part in text, (action.id, part)
