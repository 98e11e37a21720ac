"""Garbage collection at moments when nobody waits: a full one stops the screen for 20 to 50 ms."""

from __future__ import annotations

import gc

_OFTEN = (1000, 20, 100)  # of young objects as ever; of all, hardly ever while a reply is written


def hold() -> None:
    """No collection until `resume`: the program starts."""
    gc.disable()


def resume() -> None:
    """The first frame is drawn: what is there now stays, and is left out of every later collection."""
    gc.freeze()
    gc.set_threshold(*_OFTEN)
    gc.enable()


def tidy() -> None:
    """A reply has ended, or another chat is shown: now is the time."""
    gc.collect()
