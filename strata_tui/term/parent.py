"""The chat's process ends with the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def end_with(parent: int) -> None:
    """Has SIGHUP sent to this process when `parent`, which started it, ends however it may (SIGKILL too).

    Nobody would answer for the terminal any more, and a chat that runs on unseen would keep itself and the model from
    every other window.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGHUP), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if os.getppid() != parent:  # it ended before it could be watched
        os.kill(os.getpid(), signal.SIGHUP)
