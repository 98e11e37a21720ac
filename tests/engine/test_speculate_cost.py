"""What windows cost: times are given, so nothing here depends on a clock."""

from __future__ import annotations

import pytest

from strata_tui.engine.speculate_cost import Costs


def noted(*windows: tuple[int, float]) -> Costs:
    costs = Costs()
    for n, seconds in windows:
        costs.note(n, seconds)
    return costs


def test_a_length_is_measured_from_its_third_window_in_a_row_on() -> None:
    costs = noted((1, 9.0), (1, 5.0))
    assert costs.plain is None and costs.window(2) is None
    costs.note(1, 1.0)
    costs.note(1, 1.2)
    assert costs.plain == pytest.approx(1.1) and costs.measured(1) == 2
    for seconds in (4.0, 3.0, 1.5, 1.5):
        costs.note(2, seconds)
    assert costs.window(2) == 1.5 and costs.longest == 2


def test_what_a_change_costs_is_that_of_the_first_two_windows() -> None:
    costs = noted(*[(1, 1.0)] * 3, *[(2, s) for s in (4.0, 3.0, 1.5)])
    assert costs.change == 0.0 and not costs.known, "what a window of two costs was not known before"
    costs.note(1, 2.5)
    assert costs.change == 1.5 and not costs.known
    costs.note(1, 1.25)
    assert costs.change == 1.75 and costs.known
    assert costs.usual(1) == 1.0
    assert costs.usual(2) == pytest.approx(1.1 + 1.5), "one measurement of two tokens is too few to go by"
    costs.note(2, 3.0)
    assert costs.usual(2) == pytest.approx(1.1 + 0.25), "the second"
    for _ in range(3):
        costs.note(2, 1.5)
    assert costs.usual(2) == 1.5


def test_behind_a_prompt_nothing_is_told_of_a_change() -> None:
    costs = noted(*[(1, 1.0)] * 3, *[(2, 1.5)] * 3, (1, 2.5), (1, 1.25))
    costs.paused()
    assert costs.usual(1) == 1.0
    for seconds in (70.0, 30.0, 1.0):
        costs.note(1, seconds)
    assert costs.change == 1.75 and costs.plain == 1.0


def test_where_changes_cost_nothing_every_window_is_measured() -> None:
    costs = noted(*[(1, 1.0)] * 3, *[(2, 1.5)] * 3, (1, 1.02), (1, 1.0), (1, 1.0))
    assert costs.known and costs.change < 0.1
    measured = costs.measured(2)
    costs.note(2, 1.6)
    assert costs.measured(2) == measured + 1 and costs.measured(1) == 2
    costs.note(1, 1.0)
    assert costs.measured(1) == 3 and costs.since_plain == 0


def test_a_length_that_was_not_measured_is_drawn_through_the_others() -> None:
    costs = noted(*[(1, 1.0)] * 3, *[(3, 2.0)] * 3)
    assert costs.window(2) == pytest.approx(1.1)
    assert costs.window(4) == pytest.approx(2.5)
    assert costs.window(3) == 2.0
    costs = noted(*[(1, 1.0)] * 3, *[(2, 90.0)] * 3)
    assert costs.window(2) == 3.0, "no window costs much more than its tokens one by one"
