"""The terminal's side of a measurement: a pseudo-terminal, keys that are typed, and what the program draws."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from types import TracebackType
from typing import Any

from ..errors import UserError
from ..term.launcher import this_python
from .ui_child import Spec

PATIENCE = 60.0  # seconds for something to be drawn
_STYLES = re.compile(rb"\x1b\[[0-9;:]*m")


def _own_terminal() -> None:
    """In the child: its input becomes the terminal of a session of its own, so that it hears of new sizes."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A program on a terminal of its own, of `size` cells (width, height). Times are on the monotonic clock."""

    def __init__(self, spec: Spec, size: tuple[int, int] = (120, 40), command: list[str] | None = None) -> None:
        """`command`: another program than the measured one; it reports nothing."""
        self._master, slave = pty.openpty()
        self._size(slave, size)
        self._pipe, report = os.pipe()
        argument = json.dumps(asdict(replace(spec, report=report)))
        environment = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        for name in ("NO_COLOR", "TMUX", "STY", "SSH_TTY"):
            environment.pop(name, None)
        self.begun = time.monotonic()
        self._process = subprocess.Popen(
            command or [*this_python(), "-m", "strata_tui.bench.ui_child", argument],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            pass_fds=[report],
            preexec_fn=_own_terminal,
            env=environment,
        )
        os.close(slave)
        os.close(report)
        self._drawn = b""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._master)
        os.close(self._pipe)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the program has ended."""
        return self._process.poll() is not None

    def type(self, text: str) -> float:
        """Types; when."""
        now = time.monotonic()
        os.write(self._master, text.encode())
        return now

    def resize(self, size: tuple[int, int]) -> float:
        """Another size; when."""
        now = time.monotonic()
        self._size(self._master, size)  # the kernel tells the program
        return now

    def read(self, seconds: float, seen: Callable[[float, bytes], bool] = lambda *_: False) -> bool:
        """Takes what is drawn for some seconds, or until `seen` says so: of the time, and the text without styles."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._master], [], [], left)[0]:
                break
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # the program has ended
                return False
            now = time.monotonic()
            self._drawn = self._drawn[-200:] + data
            if seen(now, _STYLES.sub(b"", self._drawn)):
                self._drawn = b""
                return True
        return False

    def wait_for(self, words: str) -> float:
        """Waits until some words are drawn, in one run; when. Raises UserError."""
        when = 0.0
        raw = words.encode()
        kept = b""

        def seen(now: float, drawn: bytes) -> bool:
            nonlocal when, kept
            when, kept = now, drawn
            return raw in drawn

        if not self.read(PATIENCE, seen):
            shown = kept[-300:].decode("utf-8", "replace")
            raise UserError(f"The measured program never drew {words!r}; the last it drew: {shown!r}.")
        return when

    def last_time(self, words: str, seconds: float) -> float | None:
        """When some words were drawn for the last time within some seconds; None: not at all."""
        found: float | None = None
        raw = words.encode()

        def seen(now: float, drawn: bytes) -> bool:
            nonlocal found
            if raw in drawn:
                found = now
                self._drawn = b""
            return False

        self.read(seconds, seen)
        return found

    def cpu_seconds(self) -> float:
        """Processor time that the program has used so far, in all threads."""
        with open(f"/proc/{self._process.pid}/stat", encoding="ascii", errors="replace") as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def quit(self) -> dict[str, Any]:
        """Ends the program; its report. Raises UserError."""
        self.type("\x11")  # ctrl+q
        return self.report()

    def report(self) -> dict[str, Any]:
        """Waits for the end of the program; its report. Raises UserError."""
        end = time.monotonic() + 10 * PATIENCE
        raw = b""
        while time.monotonic() < end:
            ready = select.select([self._master, self._pipe], [], [], 1.0)[0]
            if self._master in ready:
                with contextlib.suppress(OSError):  # the program has ended
                    os.read(self._master, 1 << 16)
            if self._pipe in ready:
                data = os.read(self._pipe, 1 << 16)
                raw += data
                if not data:
                    break
        if not raw:
            raise UserError("The measured program ended without a report.")
        report: dict[str, Any] = json.loads(raw)
        return report

    @staticmethod
    def _size(fd: int, size: tuple[int, int]) -> None:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
