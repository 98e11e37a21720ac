"""The parent process: starts the chat on the same terminal, and cleans up where the chat could not.

A failed assertion or a memory error in native code ends a process on the spot, with the alternate screen on, mouse
reports on and the cursor hidden. Only another process can repair that.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

from ..config import log_dir
from ..errors import UserError
from .restore import Terminal
from .signals import handling, nothing

RESUME: Final = "strata-tui chat --continue"
_KEYBOARD: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
_FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP)
_UNCAUGHT: Final = 1
"""Python's exit code after an exception. The chat has explained its own exit codes itself."""


def this_python() -> list[str]:
    """The command of another process on the same package as this one."""
    # python -m has the current folder on its path, python -P -m and an installed command have not
    safe = [] if getattr(sys.modules["__main__"], "__spec__", None) and not sys.flags.safe_path else ["-P"]
    return [sys.executable, *safe]


def supervise(argv: Sequence[str]) -> int:
    """Runs `argv` to its end; returns its exit code, or 128 + n if signal n killed it.

    Keys are the child's to answer; SIGTERM and SIGHUP are passed on; when the child stops (Ctrl+Z) the whole job does,
    and `fg` wakes it. After a death by signal, or an exit that left the terminal raw, the terminal is restored. After
    an end that nobody has explained, one line on stderr says what happened, where the log is (the value of `--log=` in
    `argv`, else the usual place) and how to go on. Main thread only. Raises UserError if `argv` cannot be started.
    """
    terminal = Terminal.found()
    child = _Child()
    handlers = dict.fromkeys(_KEYBOARD, nothing) | dict.fromkeys(_FORWARDED, child.forward)
    with handling(handlers):
        child.start(argv)
        code = child.wait()
    left_raw = terminal is not None and terminal.left_raw()
    if terminal is not None and (code < 0 or left_raw):
        terminal.restore()
    if (what := _unexplained(code, left_raw)) is not None:
        with suppress(OSError, ValueError):
            print(f"strata-tui: {what} The log is {_log(argv)}; go on with: {RESUME}", file=sys.stderr, flush=True)
    return code if code >= 0 else 128 - code


class _Child:
    def __init__(self) -> None:
        self._pid = 0
        self._early: list[int] = []

    def start(self, argv: Sequence[str]) -> None:
        try:
            # Python ignores these two; a program that it starts should not.
            self._pid = os.posix_spawnp(argv[0], list(argv), os.environ, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ])
        except OSError as error:
            raise UserError(f"The chat cannot be started: {argv[0]}: {error.strerror}.") from error
        for number in self._early:
            self._send(number)

    def forward(self, number: int, frame: FrameType | None) -> None:
        """Signal handler: passes the signal on, if need be once there is someone to pass it to."""
        if self._pid:
            self._send(number)
        else:
            self._early.append(number)

    def wait(self) -> int:
        """The exit code, or -n for a death by signal n. Stops, with the whole job, when the child stops."""
        while True:
            _, status = os.waitpid(self._pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                self._pid = 0
                return os.waitstatus_to_exitcode(status)
            if os.getpgrp() == os.getsid(0):
                # There is no shell with job control that could ever wake it.
                self._send(signal.SIGCONT)
            else:
                # As if the terminal had stopped the job: the shell takes over, and `fg` continues the whole job.
                os.killpg(os.getpgrp(), signal.SIGSTOP)

    def _send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, number)


def _unexplained(code: int, left_raw: bool) -> str | None:
    """What there is to tell about the end of the chat; None if nothing."""
    if code < 0:
        return f"The chat was killed by {_signal_name(-code)}."
    if left_raw:
        return f"The chat ended (exit code {code}) without leaving the screen."
    return "The chat ended with an error." if code == _UNCAUGHT else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _log(argv: Sequence[str]) -> Path:
    for flag in argv:
        if flag.startswith("--log="):
            return Path(flag.removeprefix("--log="))
    return log_dir() / "engine.log"
