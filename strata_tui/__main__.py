"""Where the program begins: Ctrl-C ends it quietly from the first import on."""

from __future__ import annotations

import os
import signal
from types import FrameType

_STOPPED = 130  # as in cli.py


def _end(_number: int, _frame: FrameType | None) -> None:
    """Nothing is begun while modules are imported, so nothing is to be closed."""
    os._exit(_STOPPED)


def main() -> int:
    """Imports the command line and runs it; the exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored (nohup), and stays so
        signal.signal(signal.SIGINT, _end)
    from .cli import main as run

    try:
        if signal.getsignal(signal.SIGINT) is _end:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:
        return _STOPPED


if __name__ == "__main__":
    raise SystemExit(main())
