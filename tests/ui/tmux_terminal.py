"""The chat in a real terminal: tmux, or a tmux inside it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import strata_tui

ROOT = Path(strata_tui.__file__).parent.parent
LIMIT = 30.0  # seconds, after which something is taken to never come
_STEP = 0.02  # between two looks
_NAMES = {
    "escape": "Escape",
    "enter": "Enter",
    "tab": "Tab",
    "shift+tab": "BTab",
    "pageup": "PageUp",
    "pagedown": "PageDown",
    "delete": "DC",
    "space": "Space",
    "slash": "/",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
}
# tmux has no name for them, and passes on what a terminal with the kitty protocol sends only when nothing is nested.
SEQUENCES = {"shift+enter": "\x1b[13;2u", "alt+enter": "\x1b[13;3u"}
_SGR = re.compile(r"\x1b\[([0-9;]*)m")


def tmux_key(key: str) -> str:
    """A key's name as tmux has it."""
    if key in _NAMES:
        return _NAMES[key]
    for mine, theirs in (("ctrl+", "C-"), ("alt+", "M-")):
        if key.startswith(mine):
            rest = key.removeprefix(mine)
            return theirs + _NAMES.get(rest, rest.capitalize() if len(rest) > 1 else rest)
    return key.capitalize() if len(key) > 1 else key


class Tmux:
    """A server of its own with one window, in which the program runs, or a second server's window with the program."""

    def __init__(self, folder: Path, nested: bool) -> None:
        self.nested = nested
        self._conf = folder / "tmux.conf"
        self._conf.write_text("set -g status off\nset -g escape-time 20\n")
        self._sockets = [folder / "outer", folder / "inner"] if nested else [folder / "outer"]

    def start(self, program: str, folder: Path, width: int = 120, height: int = 40) -> None:
        """Starts the program in a folder."""
        if self.nested:
            program = f"env -u TMUX tmux -S {self._sockets[1]} -f {self._conf} new-session -s t '{program}'"
        size = ("-x", str(width), "-y", str(height), "-c", str(folder))
        self._run(0, "new-session", "-d", "-s", "t", *size, program)

    def _run(self, server: int, *words: str) -> str:
        command = ["tmux", "-S", str(self._sockets[server]), "-f", str(self._conf), *words]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def press(self, *keys: str) -> None:
        """Presses keys by their names in the table of actions; what is no name is typed."""
        for key in keys:
            if key in SEQUENCES:
                codes = [f"{byte:02x}" for byte in SEQUENCES[key].encode()]
                self._run(0, "send-keys", "-t", "t", "-H", *codes)
            else:
                self._run(0, "send-keys", "-t", "t", tmux_key(key))

    def type(self, text: str) -> None:
        self._run(0, "send-keys", "-t", "t", "-l", text)

    def shown(self, styles: bool = False) -> str:
        return self._run(0, "capture-pane", "-p", "-t", "t", *(["-e"] if styles else []))

    def until(self, condition: Callable[[str], object]) -> str:
        """Waits for something on the screen."""
        end = time.monotonic() + LIMIT
        while not condition(text := self.shown()):
            assert time.monotonic() < end, text
            time.sleep(_STEP)
        return text

    def steady(self) -> str:
        """What is shown once it does not change for a moment: a frame comes in pieces. Some things never rest."""
        before = self.shown()
        for _ in range(10):
            time.sleep(_STEP)
            now = self.shown()
            if now == before:
                break
            before = now
        return before

    def bold(self) -> list[str]:
        """What is drawn in bold: a chosen label is."""
        found, on, last = [], False, 0
        text = self.shown(styles=True)
        for match in _SGR.finditer(text):
            if on:
                found.append(text[last : match.start()])
            codes = match[1].split(";")
            on, last = ("1" in codes or (on and "0" not in codes and match[1] != "")), match.end()
        return found

    def buffer(self) -> str:
        """What was copied last."""
        return self._run(-1, "show-buffer")

    def scribble(self, text: str) -> None:
        """Writes over the screen behind the program's back."""
        tty = self._run(-1, "display-message", "-p", "-t", "t", "#{pane_tty}").strip()
        with open(tty, "w") as file:
            file.write(f"\x1b7\x1b[6;6H{text}\x1b8")

    def ended(self) -> bool:
        """Whether the program is gone."""
        command = ["tmux", "-S", str(self._sockets[-1]), "has-session"]
        return subprocess.run(command, capture_output=True).returncode != 0

    def kill(self) -> None:
        for socket in reversed(self._sockets):
            subprocess.run(["tmux", "-S", str(socket), "kill-server"], capture_output=True)


def program(folder: Path, model: Path, flags: str = "") -> str:
    """The command line of the chat with all its folders in one."""
    editor = folder / "editor"
    editor.write_text('#!/bin/sh\nprintf "from the editor" > "$1"\n')
    editor.chmod(0o755)
    env = {f"STRATA_TUI_{name}": str(folder / name.lower()) for name in ("DATA", "CACHE", "LOGS")}
    env |= {"STRATA_TUI_CONFIG": str(folder / "settings.toml"), "HOME": str(folder), "EDITOR": str(editor)}
    env |= {"PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive", "ESCDELAY": "25", "COLORTERM": "truecolor"}
    env |= {"COLUMNS": "80", "LINES": "24"}  # as a shell may have left them; the terminal is larger
    dropped = "".join(f"-u {name} " for name in ("VISUAL", "DISPLAY", "WAYLAND_DISPLAY", "XDG_CACHE_HOME", "NO_COLOR"))
    given = " ".join(f"{name}={value}" for name, value in env.items())
    start = f"{sys.executable} -P -m strata_tui -m {model} --gpu -1 --threads 1 --temperature 0 {flags}"
    return f"env {dropped}{given} {start}"


def available() -> bool:
    return shutil.which("tmux") is not None
