"""Puts a terminal back as it was before a full-screen program that did not do so itself."""

from __future__ import annotations

import contextlib
import os
import termios
import time
from dataclasses import dataclass
from typing import Any

# What the screen may have switched on. The order matters: the kitty keyboard's flags belong to the alternate screen,
# so they go first; the cursor is saved because leaving the alternate screen, even when not in it, moves it to where it
# was last saved.
RESET = (
    "\x1b[?2026l"  # synchronized output
    "\x1b[<u"  # kitty keyboard protocol
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?1016l"  # mouse
    "\x1b[?2004l"  # bracketed paste
    "\x1b[?1004l"  # focus events
    "\x1b[?2048l"  # resize events
    "\x1b7\x1b[?1049l"  # alternate screen
    "\x1b[?7h"  # lines wrap again
    "\x1b[?25h"  # cursor
    "\x1b[0m"  # colours and attributes
)
_IN_FLIGHT_S = 0.05  # mouse reports sent before the terminal has read RESET arrive within this time


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal and the line settings it had when this was made."""

    fd: int
    settings: list[Any]  # termios

    @classmethod
    def found(cls) -> Terminal | None:
        """The terminal of stderr, stdout or stdin, the first that is one."""
        for fd in (2, 1, 0):
            with contextlib.suppress(termios.error):
                return cls(fd, termios.tcgetattr(fd))
        return None

    def left_raw(self) -> bool:
        """Whether it no longer echoes or collects lines as it did."""
        try:
            now = termios.tcgetattr(self.fd)
        except termios.error:  # it is gone
            return False
        return bool(self.settings[3] & ~now[3] & (termios.ICANON | termios.ECHO))

    def restore(self) -> None:
        """Switches off what a screen switches on, drops what was typed at it, and puts the settings back.

        Does nothing to a terminal that is gone, or that another job has in the foreground.
        """
        with contextlib.suppress(OSError, termios.error):
            if os.tcgetpgrp(self.fd) == os.getpgrp():
                os.write(self.fd, RESET.encode())
                time.sleep(_IN_FLIGHT_S)
                termios.tcsetattr(self.fd, termios.TCSAFLUSH, self.settings)
