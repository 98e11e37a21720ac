"""What only a real terminal shows: mouse reports, and the person's own editor on the same terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_fixtures import TinyModel

LIMIT = 40.0  # seconds, after which something is taken to never come
MOUSE_ON, MOUSE_OFF = b"\x1b[?1000h", b"\x1b[?1000l"


class Terminal:
    """The outer end of a pseudo-terminal with the chat in it."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.end, inner = pty.openpty()
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.process = subprocess.Popen(
            command, stdin=inner, stdout=inner, stderr=inner, env=env, start_new_session=True
        )
        os.close(inner)
        self.seen = b""

    def until(self, *parts: bytes) -> bytes:
        """Reads until all of these have come since the last keys."""
        limit = time.monotonic() + LIMIT
        while not all(part in self.seen for part in parts):
            assert time.monotonic() < limit, (parts, self.seen[-3000:])
            if select.select([self.end], [], [], 1.0)[0]:
                self.seen += os.read(self.end, 65536)
        return self.seen

    def ended(self) -> int:
        """The program's exit code; what it still writes is read, for it waits for that."""
        while True:
            try:
                if select.select([self.end], [], [], LIMIT)[0] and os.read(self.end, 65536):
                    continue
            except OSError:  # nobody has the other end any more
                pass
            return self.process.wait(LIMIT)

    def type(self, keys: str) -> None:
        self.seen = b""
        os.write(self.end, keys.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.end)


@pytest.fixture
def terminal(tmp_path: Path, tiny_model: TinyModel) -> Iterator[Terminal]:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "%s and written in the editor" "$(cat "$1")" > "$1"\n')
    editor.chmod(0o755)
    env = {k: v for k, v in os.environ.items() if not k.startswith("STRATA_TUI_")}
    env |= {f"STRATA_TUI_{n}": str(tmp_path / n) for n in ("DATA", "CACHE", "LOGS", "CONFIG")}
    env |= {"TERM": "xterm-256color", "VISUAL": str(editor), "OMP_WAIT_POLICY": "passive"}
    flags = ["-m", str(tiny_model("qwen3moe")), "--gpu", "-1", "--threads", "1"]
    found = Terminal([sys.executable, "-P", "-m", "strata_tui", "chat", *flags, "--child"], env)
    try:
        found.until(b"Memory plan")  # of the loaded model
        yield found
    finally:
        found.close()


def test_the_mouse_and_the_editor(terminal: Terminal) -> None:
    assert MOUSE_ON in terminal.seen
    for word, sequence in (("off", MOUSE_OFF), ("on", MOUSE_ON)):
        terminal.type(f"/mouse {word}")
        terminal.until(b"/mouse")
        terminal.type("\r")
        terminal.until(sequence, b"The mouse is")
    terminal.type("half typed")
    terminal.until(b"half typed")
    terminal.type("\x07")  # ctrl+g
    terminal.until(b"\x1b[?1049l", b"\x1b[?1049h", b"half typed and written in the editor")
    terminal.type("\x11")  # ctrl+q
    assert terminal.ended() == 0


def test_bytes_that_are_no_text_and_keys_that_come_at_once(terminal: Terminal) -> None:
    terminal.seen = b""
    os.write(terminal.end, b"caf\xe9 and more")  # Latin-1
    terminal.until("\ufffd and more".encode())
    terminal.type("\x1bo\x1b[B")  # alt+o and down in one
    terminal.until(b"Options for this chat")
    terminal.type("\x1b")
    time.sleep(0.5)  # a pause is what tells escape from the beginning of another key
    terminal.type("\x11")
    assert terminal.ended() == 0


def test_the_end_says_how_to_come_back(terminal: Terminal) -> None:
    terminal.type("hello")
    terminal.until(b"hello")
    terminal.type("\r")
    terminal.until(b"You")
    terminal.type("\x11")  # ctrl+q
    terminal.until(b"\x1b[?1049l", b"Go on with: strata-tui --resume 1\r\n")
    assert terminal.ended() == 0
