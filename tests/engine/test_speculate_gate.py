"""The gate on a simulated engine: times and acceptance are given, so nothing here depends on a clock."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from statistics import fmean

import pytest

from strata_tui.engine.speculate_gate import LOSS, Gate

DRAFTER = "heads"


@dataclass
class Engine:
    """`row`: cost of one more row (or of 0, 1, ... more), `draft`: of a draft, in plain tokens' time; `right`: share of
    drafts that fit."""

    row: float | tuple[float, ...]
    draft: float
    right: float
    seed: int = 0
    behind: float = 0.0  # what a plain token costs more behind a window or a draft
    later: float = 0.0  # ... and each of the next 8: experts that it drove out are missed
    change: tuple[float, float] = (0.0, 0.0)  # what the first and second window of another length cost more
    noise: float = 0.0  # chance that something else holds up a round, by 20 plain tokens' time
    missing: float = 0.0  # share of rounds that wait for experts: they take 2.3 times what the others do

    def __post_init__(self) -> None:
        self.gate, self.rng = Gate(), random.Random(self.seed)
        self.seconds, self.tokens, self.windows, self.last = 0.0, 0, 0, 0
        self.alike = 9  # windows of the last one's length before it
        self.since = 99  # tokens since a window

    def round(self) -> int:
        """Drafts used."""
        gate, k, asked = self.gate, 0, False
        if gate.may_draft(DRAFTER):
            rates: list[float] = []
            while len(rates) < 4 and (not rates or gate.goes_on(rates, rates[-1], DRAFTER)):
                rates.append(gate.rate((DRAFTER, len(rates), 5), 0.55).value)
            cost, asked = self.draft * len(rates), True
            gate.drafted(DRAFTER, len(rates), cost)
            self.seconds += cost
            k = gate.length(DRAFTER, rates)
        rows = self.row[k] if isinstance(self.row, tuple) else self.row * k
        self.alike = self.alike + 1 if k == self.last else 0
        took = (1 + rows) * self.waits() + (self.change[self.alike] if self.alike < 2 else 0.0)
        took += self.behind if (self.last or asked) and not k else 0.0
        took += self.later if self.since < 8 else 0.0
        self.last, self.since = k, 0 if k else self.since + 1
        extra = 20.0 if self.rng.random() < self.noise else 0.0
        accepted = 0
        while accepted < k and self.rng.random() < self.right:
            accepted += 1
        gate.note(window=k + 1, seconds=took + extra, drafter=DRAFTER if k else "", got=accepted + 1)
        gate.judge([(DRAFTER, i, 5) for i in range(k)], accepted)
        self.seconds += took
        self.tokens += accepted + 1
        self.windows += 1
        return k

    def waits(self) -> float:
        """A factor of the time of a round, 1 on average."""
        return (2.3 if self.rng.random() < self.missing else 1.0) / (1 + 1.3 * self.missing)

    def run(self, tokens: int) -> float:
        """Speed against plain decoding over so many tokens."""
        seconds, begun = self.seconds, self.tokens
        while self.tokens < begun + tokens:
            self.round()
        return (self.tokens - begun) / (self.seconds - seconds)


@pytest.mark.parametrize("row", [0.02, 0.2, 0.5, 0.9, 1.5])
@pytest.mark.parametrize("draft", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("right", [0.0, 0.2, 0.5, 0.9])
def test_never_much_slower_than_plain(row: float, draft: float, right: float) -> None:
    engine = Engine(row, draft, right)
    first = engine.run(256)
    assert first > 1 - LOSS - 5 / 256  # an account's start, and a window that was overrated
    assert engine.run(4000) > 0.985


@pytest.mark.parametrize("right", [0.0, 0.2, 0.5])
def test_what_a_window_costs_the_token_behind_it_counts(right: float) -> None:
    engine = Engine(row=0.6, draft=0.2, right=right, behind=2.5)
    engine.run(300)
    assert engine.run(4000) > 0.985


@pytest.mark.parametrize("right", [0.2, 0.5])
def test_tries_that_cost_more_than_is_seen_become_rare(right: float) -> None:
    engine = Engine(row=0.6, draft=0.2, right=right, behind=1.0, later=0.4)
    engine.run(300)
    assert engine.run(4000) > 0.992


def test_cheap_and_good_drafts_are_used_at_length() -> None:
    engine = Engine(row=0.05, draft=0.05, right=0.9)
    engine.run(200)
    assert engine.run(2000) > 2.2
    assert max(engine.round() for _ in range(8)) == 4


def test_a_window_is_as_long_as_it_pays() -> None:
    """At 60 % acceptance a second draft is worth 0.36 tokens: less than a row costs here, while the first pays."""
    engine = Engine(row=0.45, draft=0.0, right=0.6)
    engine.run(2000)
    lengths = [engine.round() for _ in range(200)]
    assert sum(k == 1 for k in lengths) > 100
    assert engine.run(4000) > 1.06


def test_off_within_64_tokens_and_tried_again() -> None:
    engine = Engine(row=0.4, draft=0.2, right=0.0)
    engine.run(64)
    assert engine.gate.accounts[DRAFTER].blocked
    asked = 0
    for _ in range(2000):
        asked += engine.gate.may_draft(DRAFTER)
        engine.round()
    assert 2 < asked < 400


def test_on_again_when_windows_become_cheap() -> None:
    engine = Engine(row=1.5, draft=0.05, right=0.8)
    assert engine.run(1000) > 0.98
    engine.row = 0.05
    engine.run(3000)
    assert engine.run(1000) > 1.5


def test_off_when_windows_become_dear() -> None:
    """As when the expert cache's hits fall."""
    paces = []
    for seed in range(8):
        engine = Engine(row=0.05, draft=0.05, right=0.8, seed=seed)
        assert engine.run(1000) > 1.5
        engine.row = 1.5  # of five tokens: 7 instead of 1.2
        paces.append(engine.run(1000))
    assert fmean(paces) > 0.965


def test_good_drafts_are_used_on_a_busy_machine() -> None:
    """Hold-ups are in `seconds` as the gate is told them, and left out of what is compared."""
    engine = Engine(row=0.1, draft=0.05, right=0.8, noise=0.05)
    engine.run(500)
    assert engine.run(3000) > 1.4


def test_nothing_is_drafted_before_plain_tokens_were_measured() -> None:
    engine = Engine(row=0.1, draft=0.1, right=0.9)
    assert [engine.round() for _ in range(26)] == [0] * 26, "the first two warm up, 24 are measured"
    assert engine.round() > 0


def test_plain_tokens_are_measured_now_and_then() -> None:
    engine = Engine(row=0.0, draft=0.0, right=1.0)
    lengths = [engine.round() for _ in range(2000)]
    assert 100 <= lengths.count(0) <= 200


@pytest.mark.parametrize(
    ("row", "right", "least"), [(0.05, 0.6, 1.2), (0.12, 0.6, 1.08), (0.3, 0.55, 0.985), (0.6, 0.55, 0.985)]
)
def test_rounds_that_wait_for_experts_count_on_average(row: float, right: float, least: float) -> None:
    """The median of such rounds says nothing of the waits, and a few of them are slow or fast by chance."""
    paces = []
    for seed in range(6):
        engine = Engine(row, draft=0.16, right=right, seed=seed, change=(0.4, 0.05), missing=0.3)
        engine.run(300)
        paces.append(engine.run(4000))
    assert min(paces) > 0.98
    assert fmean(paces) > least


def test_a_drafter_that_has_nothing_is_off_at_once() -> None:
    """Heads whose numbers are not finite."""
    gate = Gate()
    asked = 0
    for _ in range(64):
        if gate.may_draft(DRAFTER):
            asked += 1
            gate.drafted(DRAFTER, 1, 0.1)
            assert gate.length(DRAFTER, []) == 0
        gate.note(window=1, seconds=1.0, drafter="", got=1)
    assert gate.idle(DRAFTER)
    assert 4 <= asked < 20


RESIDENT = (0.0, 0.0, 0.1, 0.17, 0.27)  # what windows cost over a token on a GPU that holds all experts
FEW_SLOTS = (0.0, 0.47, 2.4, 2.6, 3.3)  # ... and on one that holds a quarter of them
CHANGE = (1.1, 1.4)  # what the first and the second window of another length cost more there


def test_windows_in_a_row_pay_where_one_alone_does_not() -> None:
    """A single try costs two changes of length, so only a stretch of windows shows what drafts are worth."""
    paces = []
    for seed in range(5):
        engine = Engine(row=RESIDENT, draft=0.15, right=0.6, change=CHANGE, seed=seed)
        paces.append(engine.run(4000))
        lengths = [engine.round() for _ in range(400)]
        assert sum(a != b for a, b in itertools.pairwise(lengths)) < 30, "what a change costs is in the choice"
    assert fmean(paces) > 1.2


@pytest.mark.parametrize("row", [RESIDENT, FEW_SLOTS])
@pytest.mark.parametrize("right", [0.0, 0.2])
def test_stretches_that_do_not_pay_become_rare(row: tuple[float, ...], right: float) -> None:
    engine = Engine(row=row, draft=0.4, right=right, change=CHANGE, behind=0.5, later=0.1)
    assert engine.run(300) > 0.93
    assert engine.run(4000) > 0.99


def test_what_others_choose_changes_no_account() -> None:
    """Windows of a fixed length, and plain tokens while drafts are off."""
    engine = Engine(row=0.6, draft=0.2, right=0.0)
    engine.run(200)
    balance = engine.gate.accounts[DRAFTER].balance
    for window in (1, 1, 1, 3, 3, 3, 1):
        engine.gate.note(window=window, seconds=1.0, drafter="", got=1, auto=False)
    assert engine.gate.accounts[DRAFTER].balance == balance
