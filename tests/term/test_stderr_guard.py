from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from strata_tui.errors import UserError
from strata_tui.term.stderr_guard import install

PROGRAM = """
import ctypes, os, sys
from pathlib import Path
from strata_tui.term.stderr_guard import install
print("early", end=" ", file=sys.stderr)
remove = install(Path(sys.argv[1]))
os.write(2, b"native\\n")
ctypes.CDLL(None).perror(b"libc")
print("python", "\\u00e9", file=sys.stderr)
sys.__stderr__.write("PICTURE ")
sys.__stderr__.flush()
os.system("echo child >&2")
remove()
os.write(2, b"late ")
print("told", file=sys.stderr)
print("told too", file=sys.__stderr__)
"""


def run(program: str, log: Path, environ: dict[str, str], stderr: Path | None = None) -> tuple[bytes, int]:
    """What a program writes to a terminal, and its exit code."""
    master, slave = pty.openpty()
    err = slave if stderr is None else os.open(stderr, os.O_WRONLY | os.O_CREAT)
    try:
        argv = [sys.executable, "-c", program, str(log)]
        code = subprocess.run(argv, stdin=slave, stdout=slave, stderr=err, env=environ, timeout=30).returncode
        os.write(slave, b"END")
        seen = b""
        while not seen.endswith(b"END"):
            seen += os.read(master, 4096)
    finally:
        for fd in {master, slave, err}:
            os.close(fd)
    return seen.removesuffix(b"END"), code


def test_native_lines_go_to_the_log_and_the_picture_to_the_terminal(tmp_path: Path, environ: dict[str, str]) -> None:
    log = tmp_path / "new" / "folder" / "engine.log"
    screen, code = run(PROGRAM, log, environ)
    assert (screen, code) == (b"early PICTURE late told\r\ntold too\r\n", 0)
    native, libc, python, child = log.read_text(encoding="utf-8").splitlines()
    assert (native, python, child) == ("native", "python \u00e9", "child")
    assert libc.startswith("libc: ")


def test_the_log_is_added_to(tmp_path: Path, environ: dict[str, str]) -> None:
    log = tmp_path / "engine.log"
    log.write_text("an older line\n")
    run(PROGRAM, log, environ)
    assert log.read_text(encoding="utf-8").startswith("an older line\nnative\n")


def test_with_stderr_in_a_file_the_picture_is_still_on_the_terminal(tmp_path: Path, environ: dict[str, str]) -> None:
    screen, code = run(PROGRAM, tmp_path / "engine.log", environ, stderr=tmp_path / "err.txt")
    assert (screen, code) == (b"PICTURE ", 0)
    assert (tmp_path / "err.txt").read_text() == "early late told\ntold too\n"


def test_a_native_crash_leaves_python_stacks_in_the_log(tmp_path: Path, environ: dict[str, str]) -> None:
    log = tmp_path / "engine.log"
    program = PROGRAM.split("os.write")[0] + "def the_culprit():\n    os.abort()\nthe_culprit()\n"
    screen, code = run(program, log, environ)
    assert code < 0
    assert screen == b"early "
    assert "in the_culprit" in log.read_text()


def test_a_log_that_cannot_be_written_is_told_and_nothing_is_changed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    before = (sys.stderr, sys.__stderr__, os.fstat(2))
    with pytest.raises(UserError, match="The log .*/file/engine.log cannot be written: .*--log"):
        install(tmp_path / "file" / "engine.log")
    with pytest.raises(UserError, match="Is a directory"):
        install(tmp_path)
    assert (sys.stderr, sys.__stderr__, os.fstat(2)) == before


def test_after_textual_it_is_too_late(tmp_path: Path, environ: dict[str, str]) -> None:
    program = PROGRAM.replace("remove = install", "import textual\nremove = install")
    screen, code = run(program, tmp_path / "engine.log", environ)
    assert code == 1
    assert b"stderr_guard.install has to run before Textual is imported" in screen
    assert (tmp_path / "engine.log").read_text() == ""
