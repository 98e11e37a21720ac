"""Signal handlers for a while: while another program has the terminal, or while the engine works."""

from __future__ import annotations

import contextlib
import os
import select
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


@contextlib.contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Turns the first Ctrl-C into a flag, so that no event is lost to an exception; the second one ends all."""
    count = 0

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: count > 0
    finally:
        signal.signal(signal.SIGINT, before)


class Waiting:
    """Waits for input so that no signal is missed. One for the program, made on the main thread, and kept.

    Python runs a signal's handler between its own instructions. A signal that comes just before the system call
    that waits, or that the system gives to another thread, is not handled until that call ends; so signals end this
    wait, too, by a pipe. The pipe is not set up anew for each wait: a handler that raises in between would leave
    Python writing to a closed one.
    """

    def __init__(self) -> None:
        self._signals, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def until_readable(self, fd: int) -> None:
        """Waits until there is something to read, or the end of it. What a handler raises is raised here."""
        while fd not in select.select([fd, self._signals], [], [])[0]:
            os.read(self._signals, 4096)
