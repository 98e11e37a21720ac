"""Signal handlers for the time that another program has the terminal."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from types import FrameType

Handler = Callable[[int, FrameType | None], None]


def nothing(number: int, frame: FrameType | None) -> None:
    """Ignores a signal here only: unlike SIG_IGN, the exec of a child puts this back to the default."""


@contextlib.contextmanager
def handling(handlers: Mapping[signal.Signals, Handler | signal.Handlers]) -> Iterator[None]:
    """Sets handlers until the end of the block. Main thread only.

    A signal that is ignored already (nohup) stays so, in children too.
    """
    before = {number: signal.getsignal(number) for number in handlers}
    mine = [number for number in handlers if before[number] != signal.SIG_IGN]
    for number in mine:
        signal.signal(number, handlers[number])
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, before[number])
