from __future__ import annotations

import base64
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from strata_tui.errors import UserError
from strata_tui.term.clipboard import MAX_OSC_BYTES, Route, copy, osc52

PLAIN = "\x1b]52;c;aGkgw6k=\x07"  # "hi é"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No desktop, no multiplexer, no connection, no clipboard program."""
    for name in ("SSH_TTY", "SSH_CONNECTION", "TMUX", "STY", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("STRATA_TUI_CACHE", str(tmp_path / "cache"))


def program(tmp_path: Path, name: str, script: str) -> Path:
    """Puts a program on the path; what it reads goes to the file returned."""
    taken = tmp_path / f"{name}.taken"
    file = tmp_path / "bin" / name
    file.write_text(f"#!/bin/sh\n{script.replace('TAKEN', str(taken))}\n")
    file.chmod(0o755)
    return taken


def test_osc52_alone() -> None:
    assert osc52("hi é") == PLAIN


def test_osc52_through_tmux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMUX", "/tmp/tmux-0/default,1,0")
    assert osc52("hi é") == "\x1bPtmux;\x1b\x1b]52;c;aGkgw6k=\x07\x1b\\"


def test_osc52_through_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STY", "1.pts-0.host")
    assert osc52("hi é") == f"\x1bP{PLAIN}\x1b\\"
    strings = osc52("x" * 1000).split("\x1b\\")
    assert strings.pop() == ""
    assert all(string.startswith("\x1bP") and len(string) <= 252 for string in strings)
    body = "".join(string.removeprefix("\x1bP") for string in strings)
    assert body == f"\x1b]52;c;{base64.b64encode(b'x' * 1000).decode()}\x07"


def test_without_a_desktop_the_terminal_is_asked() -> None:
    sent: list[str] = []
    result = copy("hi é", sent.append)
    assert sent == [PLAIN]
    assert (result.route, result.certain, result.message) == (Route.OSC, False, "sent to the terminal (OSC 52)")


def test_control_characters_are_not_copied() -> None:
    sent: list[str] = []
    copy("hi\x1b[31m é\x08", sent.append)
    assert sent == [PLAIN]


@pytest.mark.parametrize(
    ("variable", "name"), [("WAYLAND_DISPLAY", "wl-copy"), ("DISPLAY", "xclip"), ("DISPLAY", "xsel")]
)
def test_on_a_desktop_its_program_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, name: str
) -> None:
    taken = program(tmp_path, name, "exec /bin/cat > TAKEN")
    sent: list[str] = []
    assert copy("hi é", sent.append).route is Route.OSC, "there is no desktop yet"
    monkeypatch.setenv(variable, ":0")
    result = copy("a\n" + "é" * MAX_OSC_BYTES, sent.append)
    assert len(sent) == 1
    assert taken.read_text(encoding="utf-8") == "a\n" + "é" * MAX_OSC_BYTES
    assert (result.route, result.certain, result.message) == (Route.TOOL, True, f"copied ({name})")


def test_a_program_that_fails_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    program(tmp_path, "xclip", "exit 1")
    taken = program(tmp_path, "xsel", "exec /bin/cat > TAKEN")
    assert copy("text", lambda _: None).message == "copied (xsel)"
    assert taken.read_text() == "text"


def test_over_ssh_the_far_desktop_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DISPLAY", "localhost:10")
    taken = program(tmp_path, "xclip", "exec /bin/cat > TAKEN")
    for name in ("SSH_TTY", "SSH_CONNECTION"):
        monkeypatch.setenv(name, "something")
        assert copy("text", lambda _: None).route is Route.OSC
        monkeypatch.delenv(name)
    assert not taken.exists()


def test_what_a_terminal_would_drop_goes_to_a_file(tmp_path: Path) -> None:
    sent: list[str] = []
    assert copy("é" * (MAX_OSC_BYTES // 2), sent.append).route is Route.OSC
    assert len(sent[0]) < 100_000
    long = "é" * (MAX_OSC_BYTES // 2) + "x"
    result = copy(long, sent.append)
    file = tmp_path / "cache" / "copied.txt"
    assert len(sent) == 1
    assert file.read_text(encoding="utf-8") == long
    assert (result.route, result.certain) == (Route.FILE, True)
    assert str(file) in result.message


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(UserError, match="copied.txt cannot be written: "):
        copy("x" * (MAX_OSC_BYTES + 1), lambda _: None)


def test_in_tmux_its_buffer_is_filled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = os.defpath
    tmux = shutil.which("tmux", path=path)
    if tmux is None:
        pytest.skip("tmux is not installed")
    monkeypatch.setenv("PATH", path)
    socket = tmp_path / "socket"
    subprocess.run([tmux, "-S", socket, "-f", os.devnull, "new-session", "-d", "sleep 60"], check=True)
    try:
        monkeypatch.setenv("TMUX", f"{socket},1,0")
        sent: list[str] = []
        result = copy("hi é\n-- two", sent.append)
        shown = subprocess.run([tmux, "-S", socket, "show-buffer"], capture_output=True, check=True).stdout
    finally:
        subprocess.run([tmux, "-S", socket, "kill-server"], check=True)
    assert shown.decode() == "hi é\n-- two"
    assert sent == []
    assert (result.route, result.certain) == (Route.TMUX, False)


def test_without_tmuxs_server_the_sequence_is_passed_through(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setenv("TMUX", f"{tmp_path}/gone,1,0")
    sent: list[str] = []
    assert copy("hi é", sent.append).route is Route.OSC
    assert sent == ["\x1bPtmux;\x1b\x1b]52;c;aGkgw6k=\x07\x1b\\"]
