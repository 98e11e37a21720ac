"""Every default key through a real terminal: tmux, and a tmux inside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import strata_tui
from strata_tui.ui.actions import ACTIONS, Action, Where

ROOT = Path(strata_tui.__file__).parent.parent
LIMIT = 60.0  # seconds, after which something is taken to never come
NEVER = {"shift+enter", "alt+enter"}  # tmux has no sequence of its own for them
NAMES = {
    "escape": "Escape",
    "enter": "Enter",
    "tab": "Tab",
    "pageup": "PageUp",
    "pagedown": "PageDown",
    "ctrl+end": "C-End",
    "delete": "DC",
    "space": "Space",
    "slash": "/",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
}

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux here")


def tmux_key(key: str) -> str:
    """A key's name as tmux has it."""
    if key in NAMES:
        return NAMES[key]
    for mine, theirs in (("ctrl+", "C-"), ("alt+", "M-")):
        if key.startswith(mine):
            rest = key.removeprefix(mine)
            return theirs + NAMES.get(rest, rest.capitalize() if len(rest) > 1 else rest)
    return key.capitalize() if len(key) > 1 else key


class Tmux:
    """A server of its own, with one window; `prefix`: what leads to the inner tmux, where there is one."""

    def __init__(self, folder: Path) -> None:
        self.socket = str(folder / "tmux")
        self.conf = folder / "tmux.conf"
        self.conf.write_text("set -g status off\nset -g escape-time 20\n")

    def run(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-S", self.socket, "-f", str(self.conf), *words], capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def start(self, command: str) -> None:
        self.run("new-session", "-d", "-s", "t", "-x", "120", "-y", "40", command)

    def keys(self, *names: str) -> None:
        self.run("send-keys", "-t", "t", *names)

    def shown(self) -> str:
        return self.run("capture-pane", "-p", "-t", "t")

    def until(self, condition: Callable[[str], object]) -> str:
        end = time.monotonic() + LIMIT
        while not condition(text := self.shown()):
            assert time.monotonic() < end, text
            time.sleep(0.05)
        return text

    def kill(self) -> None:
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True)


@pytest.fixture
def app(request: pytest.FixtureRequest, tmp_path: Path, tiny_model: Callable[[str], Path]) -> Iterator[Tmux]:
    """The chat, ready."""
    tmux = Tmux(tmp_path)
    env = {f"STRATA_TUI_{name}": str(tmp_path / name) for name in ("DATA", "CACHE", "LOGS", "CONFIG")}
    env |= {"PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive"}
    env |= {"COLUMNS": "80", "LINES": "24"}  # as a shell may have left them; the terminal is larger
    flags = f"-m {tiny_model('qwen3moe')} --gpu -1 --threads 1 --temperature 0"
    program = f"env {' '.join(f'{k}={v}' for k, v in env.items())} {sys.executable} -P -m strata_tui {flags}"
    inner = str(tmp_path / "inner")
    if getattr(request, "param", "tmux") != "tmux":
        program = f"env -u TMUX tmux -S {inner} -f {tmux.conf} new-session '{program}'"
    tmux.start(program)
    try:
        tmux.until(lambda text: "ready" in text)
        yield tmux
    finally:
        subprocess.run(["tmux", "-S", inner, "kill-server"], capture_output=True)
        tmux.kill()


def chat_keys() -> list[tuple[str, Action]]:
    """Every key of the chat and of its areas that a terminal can send."""
    areas = [where for where in Where if not where.over]
    return [(key, a) for where in areas for a in ACTIONS if a.where is where for key in a.keys if key not in NEVER]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("app", ["tmux in tmux"], indirect=True)  # what comes through both comes through one
def test_every_default_key_arrives_and_means_its_action(app: Tmux) -> None:
    app.keys("/keys", "Enter")
    app.until(lambda text: "What the terminal sends" in text)
    for key, action in chat_keys():
        # a key in between, which is not one of the table, so that each press is a line of its own
        app.keys("F5", tmux_key(key))
        flat = app.until(lambda text, key=key: _last(text).startswith(f"{key} "))
        assert action.label.replace(" ", "") in _meaning(flat), (key, action.id)


def _lines(text: str) -> list[str]:
    """The lines of the page that begin with a key's name."""
    rows = [line.partition("┃")[2].rpartition("┃")[0] for line in text.splitlines() if line.count("┃") >= 2]
    return [row.strip(" ┃") for row in rows]


def _last(text: str) -> str:
    starts = [line for line in _lines(text) if line and not line.startswith("f5")]
    heads = [line for line in starts if line.split()[0] in _KNOWN]
    return heads[-1] + " " if heads else ""


def _meaning(text: str) -> str:
    """What stands after the last f5, without blanks, for long lines are wrapped."""
    return "".join("".join(_lines(text)).rpartition("f5")[2].split())


_KNOWN = {key for action in ACTIONS for key in action.keys}


@pytest.mark.timeout(300)
def test_keys_do_what_they_say(app: Tmux) -> None:
    for key, mark in (
        ("F1", "Keys and commands"),
        ("M-o", "Options for this chat"),
        ("M-m", "Letters of a name"),
        ("F12", "Engine log, from INFO on"),
        ("C-p", "Search for commands"),
        ("M-p", "Search for commands"),
    ):
        app.keys(key)
        app.until(lambda text, mark=mark: mark in text)
        time.sleep(0.1)  # the escape must not come in one piece with what follows
        app.keys("Escape")
        app.until(lambda text, mark=mark: mark not in text)
    app.keys("F4")
    app.until(lambda text: "Expert cache" not in text)
    app.keys("M-e")
    app.until(lambda text: "Expert cache" in text)
    app.keys("one", "C-j", "two", "\\", "Enter", "three")
    app.until(lambda text: "three" in text)
    assert [line.strip(" ┃│") for line in app.shown().splitlines() if line.strip(" ┃│") in ("one", "two", "three")] == [
        "one",
        "two",
        "three",
    ]
    app.keys("C-c")
    app.until(lambda text: "Cleared" in text)
    app.keys("C-z")
    app.until(lambda text: "three" in text)
    app.keys("Enter")
    app.until(lambda text: "You" in text and "tok/s" in text and "ready" in text)
    app.keys("C-n")
    app.until(lambda text: "New chat" in text)
    app.keys("Up")
    app.until(lambda text: "three" in text)
    app.keys("C-q")
    end = time.monotonic() + LIMIT
    while subprocess.run(["tmux", "-S", app.socket, "has-session"], capture_output=True).returncode == 0:
        assert time.monotonic() < end, app.shown()
        time.sleep(0.05)
