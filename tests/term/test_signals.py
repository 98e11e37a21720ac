"""Signals while the program waits."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from strata_tui.term.signals import Waiting


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    yield Waiting()
    os.close(signal.set_wakeup_fd(-1))


class Came(Exception):
    """The signal's handler ran."""


def came(_number: int, _frame: FrameType | None) -> None:
    raise Came


def test_a_signal_that_another_thread_got_ends_the_wait(waiting: Waiting) -> None:
    """As one that comes just before the system call: neither interrupts it."""
    reading, writing = os.pipe()

    def elsewhere() -> None:
        assert not select.select([reading], [], [], 0.2)[0]  # let the other thread begin to wait
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    late = threading.Timer(20.0, os.write, (writing, b"missed"))  # ends a wait that missed the signal
    late.start()
    before = signal.signal(signal.SIGUSR1, came)
    try:
        for _ in range(2):  # what is left of the first one does not end the second wait
            with pytest.raises(Came):
                threading.Thread(target=elsewhere).start()
                waiting.until_readable(reading)
        assert not select.select([reading], [], [], 0)[0]
    finally:
        signal.signal(signal.SIGUSR1, before)
        late.cancel()
        late.join()
        os.close(reading)
        os.close(writing)


def test_what_can_be_read_ends_the_wait(waiting: Waiting) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"x")
    waiting.until_readable(reading)
    assert os.read(reading, 1) == b"x"
    os.close(writing)
    waiting.until_readable(reading)  # the end, too
    os.close(reading)
