from __future__ import annotations

import pytest

from strata_tui.ui.pacer import LONGEST, SHARE, SHORTEST, Pacer


class Clock:
    def __init__(self) -> None:
        self.now = 7.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def waits(pacer: Pacer, clock: Clock, cost: float, frames: int) -> list[float]:
    result = []
    for _ in range(frames):
        clock.now += cost
        result.append(pacer.wait())
    return result


def test_cheap_frames_come_often_and_dear_ones_seldom(clock: Clock) -> None:
    pacer = Pacer(clock)
    pacer.begin()
    assert waits(pacer, clock, 0.0001, 20)[-10:] == [SHORTEST] * 10
    assert waits(pacer, clock, 0.5, 20)[-1] == LONGEST


def test_the_screen_takes_about_its_share_of_a_core(clock: Clock) -> None:
    pacer, cost = Pacer(clock), 0.006
    pacer.begin()
    wait = waits(pacer, clock, cost, 40)[-1]
    assert SHORTEST < wait < LONGEST
    assert cost / wait == pytest.approx(SHARE, rel=0.01)


def test_one_dear_frame_does_not_hold_up_those_that_follow(clock: Clock) -> None:
    pacer = Pacer(clock)
    pacer.begin()
    waits(pacer, clock, 0.001, 20)
    assert waits(pacer, clock, 0.02, 1)[0] < LONGEST
    assert waits(pacer, clock, 0.001, 10)[-1] == SHORTEST


def test_a_reply_begins_with_the_cost_of_the_frames_before_it(clock: Clock) -> None:
    pacer = Pacer(clock)
    pacer.begin()
    assert waits(pacer, clock, 0.5, 5)[-1] == LONGEST
    clock.now += 100  # spent between two replies: on no frame
    pacer.begin()
    assert waits(pacer, clock, 0.001, 1) == [LONGEST]
    assert waits(pacer, clock, 0.001, 25)[-1] == SHORTEST
    pacer.begin()
    assert waits(pacer, clock, 0.001, 1) == [SHORTEST]
