from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from strata_tui.errors import UserError
from strata_tui.term.editor import edit, editor_command


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of $EDITOR's program, to be written; it gets the text's path as $2, after an argument of its own."""
    folder = tmp_path / "with space"
    folder.mkdir()
    script = folder / "my-editor"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{shlex.quote(str(script))} --wait")
    return script


@pytest.mark.parametrize(
    ("text", "script", "wanted"),
    [
        ("old é", 'printf "new 世界" > "$2"', "new 世界"),
        ("old", 'printf "one\\ntwo\\n" > "$2"', "one\ntwo"),
        ("old\n", 'printf "one\\n" > "$2"', "one\n"),
        ("one\r\ntwo", 'printf "three" >> "$2"', "one\r\ntwothree"),
        ("old", "true", None),
        ("old", 'echo >> "$2"', None),
        ("", 'printf "" > "$2"', None),
        ("old", 'printf "" > "$2"', ""),
        ("old", 'test "$1" = --wait && cp "$2" "$2.new" && printf X >> "$2.new" && mv "$2.new" "$2"', "oldX"),
    ],
)
def test_edit(editor: Path, text: str, script: str, wanted: str | None) -> None:
    editor.write_text(f"#!/bin/sh\n{script}\n")
    assert edit(text) == wanted


def test_the_file_is_private_named_and_gone_afterwards(editor: Path, tmp_path: Path) -> None:
    editor.write_text(f'#!/bin/sh\necho "$2" > {tmp_path}/name\nls -ld "$(dirname "$2")" > {tmp_path}/mode\n')
    assert edit("secret", suffix=".txt") is None
    path = Path((tmp_path / "name").read_text().strip())
    assert path.suffix == ".txt"
    assert (tmp_path / "mode").read_text().startswith("drwx------")
    assert not path.exists() and not path.parent.exists()


def test_a_failure_changes_nothing(editor: Path) -> None:
    editor.write_text('#!/bin/sh\necho lost > "$2"\nexit 1\n')
    with pytest.raises(UserError, match="my-editor failed .exit code 1.; the text stays"):
        edit("kept")


def test_what_is_no_text_changes_nothing(editor: Path) -> None:
    editor.write_text("#!/bin/sh\nprintf '\\377\\376' > \"$2\"\n")
    with pytest.raises(UserError, match="left no text"):
        edit("kept")
    editor.write_text('#!/bin/sh\nrm "$2"\n')
    with pytest.raises(UserError, match="left no text"):
        edit("kept")


def test_ctrl_c_is_the_editors(editor: Path) -> None:
    editor.write_text(f'#!/bin/sh\nkill -INT {os.getpid()}\nprintf new > "$2"\n')
    before = signal.getsignal(signal.SIGINT)
    assert edit("old") == "new"
    assert signal.getsignal(signal.SIGINT) is before


def test_the_editors_errors_go_to_the_terminal(editor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As under stderr_guard: the terminal is sys.__stderr__, and descriptor 2 something else.
    editor.write_text("#!/bin/sh\necho complaint >&2\n")
    with (tmp_path / "terminal").open("w") as terminal:
        monkeypatch.setattr(sys, "__stderr__", terminal)
        edit("text")
    assert (tmp_path / "terminal").read_text() == "complaint\n"


def test_visual_comes_first(editor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "sh -c")
    assert editor_command() == ["sh", "-c"]
    monkeypatch.setenv("VISUAL", " ")
    assert editor_command() == [str(editor), "--wait"]


def test_an_installed_editor_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="There is no editor"):
        editor_command()
    (tmp_path / "vi").write_text("#!/bin/sh\n")
    (tmp_path / "vi").chmod(0o755)
    assert editor_command() == [str(tmp_path / "vi")]


@pytest.mark.parametrize(("value", "message"), [("'unclosed", "not a command"), ("nonsuch-editor -w", "not installed")])
def test_a_wrong_setting_is_told(monkeypatch: pytest.MonkeyPatch, value: str, message: str) -> None:
    monkeypatch.setenv("VISUAL", value)
    with pytest.raises(UserError, match=f"^\\$VISUAL .*{message}"):
        edit("text")
