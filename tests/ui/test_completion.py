from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from strata_tui.ui.actions import BY_ID
from strata_tui.ui.completion import Kind, command_choices, fixed_choices, path_choices, token_at
from strata_tui.ui.files import FileIndex
from strata_tui.ui.prompt_history import PromptHistory


@pytest.mark.parametrize(
    ("text", "kind", "start", "typed"),
    [
        ("/", Kind.COMMAND, 0, "/"),
        ("/ex", Kind.COMMAND, 0, "/ex"),
        ("/theme ", Kind.ARGUMENT, 7, ""),
        ("/theme  st", Kind.ARGUMENT, 8, "st"),
        ("see @src/m", Kind.FILE, 4, "src/m"),
        ("@", Kind.FILE, 0, ""),
        ("(@a", Kind.FILE, 1, "a"),
        ("one\ntwo @x", Kind.FILE, 4, "x"),
    ],
)
def test_what_is_being_completed(text: str, kind: Kind, start: int, typed: str) -> None:
    row = text.count("\n")
    token = token_at(text, row, len(text.split("\n")[row]))
    assert token is not None and (token.kind, token.start, token.text) == (kind, start, typed)


@pytest.mark.parametrize("text", ["", "hello", "/etc/fstab", "/help x", "me@example.org", "a @b c", "/unknown x"])
def test_where_nothing_is_completed(text: str) -> None:
    assert token_at(text, 0, len(text)) is None


def test_the_cursor_decides() -> None:
    assert token_at("/theme dark", 0, 3) is not None
    token = token_at("@one and @two", 0, 4)
    assert token is not None and (token.start, token.text) == (0, "one")


def test_commands_with_their_argument_key_and_meaning() -> None:
    [choice] = command_choices("/mod", lambda id: BY_ID[id].keys)
    assert choice.text == "/model" and choice.more
    assert choice.hint == "NAME" and "alt+m" in choice.note and BY_ID["model"].label in choice.note


def test_values_that_the_table_names() -> None:
    assert [c.text for c in fixed_choices(BY_ID["pin"], "o")] == ["on", "off"]
    assert fixed_choices(BY_ID["rename"], "") == []


def test_paths(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.txt", ".hidden", "aa/x.gguf"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    start = f"{tmp_path}/"
    assert [c.text.removeprefix(start) for c in path_choices(start)] == ["a.gguf", "aa/", "b.txt"]
    assert [c.text.removeprefix(start) for c in path_choices(start + "a", (".gguf",))] == ["a.gguf", "aa/"]
    assert [c.text.removeprefix(start) for c in path_choices(start + ".")] == [".hidden"]
    assert path_choices(start + "missing/x") == []


def filled(folder: Path) -> None:
    for name in "README.md src/main.py src/chat/main_window.py src/domain.py .secret node_modules/main.js x.o".split():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


@pytest.mark.parametrize("repository", [False, True])
def test_files_are_found_by_letters(tmp_path: Path, repository: bool) -> None:
    filled(tmp_path)
    if repository:
        (tmp_path / ".gitignore").write_text("node_modules\n*.o\n.secret\n.gitignore\n")
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    files = FileIndex(tmp_path)
    files.refresh()
    assert files.find("main", 10) == ["src/main.py", "src/chat/main_window.py", "src/domain.py"]
    assert files.find("scmw", 10) == ["src/chat/main_window.py"]
    assert files.find("readme", 1) == ["README.md"]
    assert files.find("README.md", 3)[0] == "README.md"
    assert files.find("zzz", 10) == []
    assert files.find("", 2) == (["README.md", "src/domain.py"] if repository else ["README.md", "x.o"])


def test_letters_are_no_pattern(tmp_path: Path) -> None:
    filled(tmp_path)
    files = FileIndex(tmp_path)
    files.refresh()
    assert files.find("(.*", 10) == []


def test_the_history_goes_back_and_forth() -> None:
    history = PromptHistory()
    history.add("one")
    history.add("two")
    history.add("two")
    assert history.older("writing") == "two"
    assert history.older("two") == "one"
    assert history.older("one") is None
    assert history.newer("one, changed") == "two"
    assert history.newer("two") == "writing"
    assert history.newer("writing") is None
    assert history.older("writing") == "two" and history.older("two") == "one, changed"


def test_older_messages_may_come_late() -> None:
    history = PromptHistory()
    history.add("now")
    assert history.older("") == "now"
    history.extend(["before", " "])
    assert history.older("now") == "before"
    assert history.newer("before") == "now"
    assert history.newer("now") == ""
