"""Who waits for whom: garbage is collected when nobody waits (a full collection stops the screen for 20 to 50 ms), and
the engine's thread does not wait for a frame that is being drawn.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

QUIET_SECONDS = 1.0  # without a key
# After each token the engine's thread runs a little Python, and a frame takes some ms of it: it gets its turn after so
# long. Python's own 5 ms are more than a token takes on a fast GPU.
SWITCH_SECONDS = 0.0005
_OFTEN = (1000, 20, 100)  # of young objects as ever; of all, hardly ever while a reply is written


def hold() -> None:
    """No collection until `resume`: the program starts. Threads take turns often."""
    gc.disable()
    sys.setswitchinterval(SWITCH_SECONDS)


def resume() -> None:
    """The first frame is drawn: what is there now stays, and is left out of every later collection."""
    gc.freeze()
    gc.set_threshold(*_OFTEN)
    gc.enable()


class Tidying:
    """Collects what replies left behind once nobody types. `later`: calls a function after some seconds."""

    def __init__(self, later: Callable[[float, Callable[[], None]], object], busy: Callable[[], bool]) -> None:
        self._later, self._busy = later, busy
        self._typed = 0.0  # when
        self._waits = False

    def typed(self) -> None:
        """A key was pressed."""
        self._typed = time.monotonic()

    def ask(self) -> None:
        """A reply has ended: at the next pause in the typing, unless another reply begins, whose end will do."""
        if not self._waits:
            self._waits = True
            self._later(QUIET_SECONDS, self._look)

    def _look(self) -> None:
        self._waits = False
        if self._busy():
            return
        if time.monotonic() - self._typed < QUIET_SECONDS:
            self.ask()
        else:
            gc.collect()
