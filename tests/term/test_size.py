from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios

import pytest

PROGRAM = "from strata_tui.term.size import terminal_size; print(terminal_size())"


@pytest.mark.parametrize(("size", "shown"), [((10, 40), b"(40, 10)"), ((0, 0), b"None")])
def test_the_size_is_found_where_only_stdin_is_a_terminal(
    environ: dict[str, str], size: tuple[int, int], shown: bytes
) -> None:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, size)
    done = subprocess.run([sys.executable, "-c", PROGRAM], stdin=slave, capture_output=True, env=environ)
    os.close(master)
    os.close(slave)
    assert done.stdout.strip() == shown


def test_without_a_terminal_there_is_none(environ: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], stdin=subprocess.DEVNULL, capture_output=True, env=environ)
    assert done.stdout.strip() == b"None"
