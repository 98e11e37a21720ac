"""Garbage is collected when nobody types, and threads take turns often."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import pytest

from strata_tui.ui import pauses


def test_garbage_waits_for_a_pause_in_the_typing(monkeypatch: pytest.MonkeyPatch) -> None:
    now, busy, collected = 100.0, False, 0
    timers: list[Callable[[], None]] = []

    def collect() -> int:
        nonlocal collected
        collected += 1
        return 0

    monkeypatch.setattr(pauses.time, "monotonic", lambda: now)
    monkeypatch.setattr(gc, "collect", collect)
    tidying = pauses.Tidying(lambda _seconds, look: timers.append(look), lambda: busy)

    tidying.ask()
    tidying.ask()
    assert len(timers) == 1
    now = 100.5
    tidying.typed()
    now = 101.0
    timers.pop()()
    assert not collected and len(timers) == 1, "a key came half a second ago"
    now = 102.0
    timers.pop()()
    assert collected == 1 and not timers

    tidying.ask()
    busy = True
    timers.pop()()
    assert collected == 1 and not timers, "the end of the reply that runs now will ask again"


def test_the_engine_gets_its_turn_while_a_frame_is_drawn() -> None:
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)
        pauses.hold()
        assert sys.getswitchinterval() == pytest.approx(pauses.SWITCH_SECONDS)
        assert pauses.SWITCH_SECONDS <= 0.001  # well below a token's time on a fast GPU
    finally:
        pauses.resume()
        sys.setswitchinterval(before)
