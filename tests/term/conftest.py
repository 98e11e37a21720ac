"""A pseudo-terminal with a small shell in it, which starts the launcher as a shell starts a job."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import strata_tui

ROOT = str(Path(strata_tui.__file__).parent.parent)
LAUNCH = "import sys; from strata_tui.term.launcher import supervise; sys.exit(supervise(sys.argv[1:]))"

# argv: how, program...; "job": its own process group in the foreground, "background": the same but not in the
# foreground, "orphan": the shell's own group, as when there is no job control
SHELL = """
import fcntl, json, os, signal, subprocess, sys, termios
how, *argv = sys.argv[1:]
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
for key in (signal.SIGINT, signal.SIGQUIT, signal.SIGTTOU):
    signal.signal(key, lambda *_: None)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and what is ignored is inherited
before = termios.tcgetattr(0)

def start():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
    if how != "orphan":
        os.setpgid(0, 0)
    if how == "job":
        os.tcsetpgrp(0, os.getpid())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTTOU])

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
job = subprocess.Popen(argv, preexec_fn=start)
print("LAUNCHER", job.pid, flush=True)
while True:
    _, status = os.waitpid(job.pid, os.WUNTRACED)
    os.tcsetpgrp(0, os.getpid())
    if not os.WIFSTOPPED(status):
        break
    print("STOPPED", flush=True)
    sys.stdin.readline()
    os.tcsetpgrp(0, job.pid)
    os.killpg(job.pid, signal.SIGCONT)
result = {"code": os.waitstatus_to_exitcode(status), "restored": termios.tcgetattr(0) == before}
print("DONE", json.dumps(result), flush=True)
"""


class Terminal:
    """The outer end of the pseudo-terminal."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master, self._process = master, process
        self.seen = b""

    def read_until(self, mark: bytes) -> bytes:
        """What arrives up to and with `mark`; a test that waits in vain fails with what came instead."""
        start = 0
        while (at := self.seen.find(mark, start)) < 0:
            if not select.select([self._master], [], [], 20)[0]:
                raise AssertionError(f"no {mark!r} in {self.seen!r}")
            try:
                data = os.read(self._master, 65536)
            except OSError:  # EIO: the other end is closed
                data = b""
            if not data:
                raise AssertionError(f"no {mark!r} in {self.seen!r}")
            self.seen += data
        end = at + len(mark)
        read, self.seen = self.seen[:end], self.seen[end:]
        return read

    def number_after(self, mark: bytes) -> int:
        """The number on a line that starts with `mark`."""
        self.read_until(mark)
        return int(self.read_until(b"\n"))

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def result(self) -> tuple[bytes, int, bool]:
        """What else was written, the launcher's exit code, and whether the line settings are as before."""
        output = self.read_until(b"DONE ").removesuffix(b"DONE ")
        found: dict[str, Any] = json.loads(self.read_until(b"\n"))
        assert self._process.wait(20) == 0
        return output, found["code"], found["restored"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Of a program under test: this package, and a log folder of its own."""
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return usual | {"PYTHONPATH": ROOT, "STRATA_TUI_LOGS": str(tmp_path / "logs"), "TERM": "xterm-256color"}


@pytest.fixture
def supervised(tmp_path: Path, environ: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    """Runs a Python program under the launcher in a new pseudo-terminal."""
    opened: list[int] = []
    started: list[subprocess.Popen[bytes]] = []

    def start(program: str, *flags: str, how: str = "job", launch: str = LAUNCH) -> Terminal:
        master, slave = pty.openpty()
        opened.append(master)
        termios.tcsetwinsize(slave, (24, 80))
        argv = [sys.executable, "-c", SHELL, how, sys.executable, "-c", launch, sys.executable, "-c", program, *flags]
        try:
            process = subprocess.Popen(
                argv, stdin=slave, stdout=slave, stderr=slave, cwd=tmp_path, env=environ, start_new_session=True
            )
        finally:
            os.close(slave)
        started.append(process)
        return Terminal(master, process)

    yield start
    for master in opened:
        os.close(master)  # hangs up whatever still runs there
    for process in started:
        process.kill()
        process.wait(20)
