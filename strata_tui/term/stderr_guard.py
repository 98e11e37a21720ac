"""Keeps native log lines off the screen.

Textual draws on `sys.__stderr__`, which is file descriptor 2, where C code writes its messages too. The guard gives
Textual a descriptor of its own and turns descriptor 2 to the log.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..errors import UserError

_STDERR: Final = 2


def install(log_path: Path) -> Callable[[], None]:
    """Sends descriptor 2 to the end of `log_path` and makes `sys.__stderr__` the terminal; returns what undoes it.

    `sys.stderr` still writes to descriptor 2, so warnings and tracebacks of Python go to the log as well, and so do the
    stacks of all threads when native code crashes. Where the shell has redirected descriptor 2, the terminal is taken
    from descriptor 1. Raises UserError if the log cannot be written, RuntimeError if Textual has been imported already.
    """
    try:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        log_fd = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(f"The log {log_path} cannot be written: {reason}; choose another with --log.") from error
    if "textual" in sys.modules:
        os.close(log_fd)
        raise RuntimeError("stderr_guard.install has to run before Textual is imported")
    original, had_faulthandler = sys.__stderr__, faulthandler.is_enabled()
    _flush()
    kept = os.dup(_STDERR)
    screen_fd = os.dup(_STDERR if os.isatty(_STDERR) or not os.isatty(1) else 1)
    os.dup2(log_fd, _STDERR)
    os.close(log_fd)
    screen = os.fdopen(screen_fd, "w", encoding=getattr(original, "encoding", "utf-8"), errors="backslashreplace")
    sys.__stderr__ = screen  # type: ignore[misc]
    faulthandler.enable(_STDERR)
    removed = False

    def remove() -> None:
        nonlocal removed
        if removed:
            return
        removed = True
        _flush()
        if not had_faulthandler:
            faulthandler.disable()
        os.dup2(kept, _STDERR)
        os.close(kept)
        sys.__stderr__ = original  # type: ignore[misc]
        # `screen` is not closed: a thread of Textual's may still hold it.

    return remove


def _flush() -> None:
    for stream in (sys.stderr, sys.__stderr__):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
