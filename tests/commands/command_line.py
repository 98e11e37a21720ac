"""Runs the command line as a person does, and checks how it refuses."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable

import pytest

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
COMMAND = [sys.executable, "-P", "-m", "strata_tui"]  # -P: not the checkout that the tests may run in

needs_engine = pytest.mark.skipif(
    importlib.util.find_spec("strata_tui.engine._core") is None, reason="the extension is not built"
)


def refused(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """Exit code 2, nothing on stdout, and one line on stderr that holds all parts."""
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("strata-tui: ")
    assert done.stderr.count("\n") == 1, done.stderr
    for part in parts:
        assert part in done.stderr


def in_terminal(env: dict[str, str], size: tuple[int, int], *words: str) -> tuple[int, str]:
    """Exit code and stderr of a run on a real pseudo-terminal of (columns, lines)."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    try:
        done = subprocess.run([*COMMAND, *words], stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=env)
    finally:
        os.close(master)
        os.close(slave)
    return done.returncode, done.stderr.decode()
