"""Windows of drafts, sampled: tokens have the target's distribution whatever is drafted, however it is verified."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from model_fixtures import TinyModel
from numpy.typing import NDArray
from speculating import Open, heads, opened

from strata_tui.engine import llama, native
from strata_tui.engine.sampler import Sampler
from strata_tui.engine.sampling import Resolved

# Every link of the chain changes something here: the penalty too, since all of the text is in its window.
FULL = Resolved(temperature=1.6, top_k=8, top_p=0.95, min_p=0.02, repeat_penalty=1.3)
CONTEXT = [1, 2, 3, 4, 5, 6, 7, 3, 1]
MANY = 100_000  # tokens that `step` draws, where heads draft and without drafts
FEW = int(os.environ.get("STRATA_DRAWS", "20000"))  # with other drafters
Table = NDArray[np.float64]


@dataclass(frozen=True)
class Drawn:
    """How often each pair of tokens followed CONTEXT, (n, n); tokens that `step` drew; drafts accepted and offered."""

    table: Table
    draws: int
    accepted: int
    offered: int


@pytest.fixture(scope="module")
def opened_once(tiny_model: TinyModel) -> Iterator[Open]:
    with opened(tiny_model("ten_tokens")) as o:
        o.start(CONTEXT[:-1], FULL).close()
        yield o


@pytest.fixture(scope="module")
def exact(opened_once: Open) -> Table:
    """The target's probability of each pair of tokens behind CONTEXT: (n, n), from its logits through the chain."""
    return _exact(opened_once)


@pytest.fixture(scope="module")
def plain(opened_once: Open, exact: Table) -> Drawn:
    return _draw(opened_once, "plain", MANY, exact)


def test_without_drafts_the_distribution_is_the_models(plain: Drawn, exact: Table) -> None:
    p = _fits(plain.table, exact)
    print(f"{plain.draws} draws, p = {p:.3f}")
    assert plain.draws >= MANY and plain.offered == 0
    assert p > 1e-4


@pytest.mark.parametrize("kind", ["heads", "guesses", "all rejected", "all accepted", "proposals"])
def test_drafts_leave_the_distribution(kind: str, opened_once: Open, exact: Table, plain: Drawn) -> None:
    """Chi-square tests of pairs of tokens: against the model's own probabilities, and beside plain sampling."""
    drawn = _draw(opened_once, kind, MANY if kind == "heads" else FEW, exact, first_seed=1 << 30)
    fits, same = _fits(drawn.table, exact), _same(drawn.table, plain.table)
    share = f"{drawn.accepted} of {drawn.offered} drafts accepted"
    print(f"{kind}: {drawn.draws} draws, {share}, p = {fits:.3f}, beside plain sampling {same:.3f}")
    assert fits > 1e-4 and same > 1e-4
    if kind == "all rejected":
        assert drawn.accepted == 0 < drawn.offered
    elif kind == "all accepted":
        assert drawn.accepted > 0.999 * drawn.offered > 0  # but for rounding
    else:
        assert 0 < drawn.accepted < drawn.offered


def test_the_test_of_distributions_sees_a_difference(opened_once: Open, exact: Table, plain: Drawn) -> None:
    """A drafter that lies about what it drew from gets too much of it accepted."""
    drawn = _draw(opened_once, "lies", 6000, exact)
    assert _fits(drawn.table, exact) < 1e-6
    assert _same(drawn.table, plain.table) < 1e-6


def _draw(o: Open, kind: str, most: int, exact: Table, first_seed: int = 1) -> Drawn:
    """So many tokens, two or more behind CONTEXT with one seed."""
    n = o.model.n_vocab
    rng = np.random.default_rng(first_seed)
    table = np.zeros((n, n))
    draws = accepted = offered = 0
    with_sampler = Sampler(o.model, FULL)
    lib = llama.library()
    seed = first_seed
    while draws < most:
        assert o.context.remove_from(len(CONTEXT) - 1)
        o.spec.cut(len(CONTEXT) - 1)
        lib.llama_sampler_reset(with_sampler._chain)
        with_sampler.accept(CONTEXT)
        o.spec.begin(with_sampler.address, with_sampler.greedy, with_sampler.keep, seed)
        seed += 1
        o.text = list(CONTEXT)
        while len(o.text) < len(CONTEXT) + 2:
            drafts, proposals = _draft(o, kind, rng, exact)
            status, tokens = o.spec.step(o.text[-1], o.position, drafts, proposals, own=kind == "heads")
            assert status == 0
            draws += len(tokens)
            offered += len(drafts)
            accepted += len(tokens) - 1
            o.text += tokens
        table[o.text[len(CONTEXT)], o.text[len(CONTEXT) + 1]] += 1
    o.spec.end()
    with_sampler.close()
    return Drawn(table, draws, accepted, offered)


def _draft(
    o: Open, kind: str, rng: np.random.Generator, exact: Table
) -> tuple[list[int], list[list[tuple[int, float]] | None] | None]:
    """Drafts, and what they were drawn from."""
    n, at = o.model.n_vocab, len(o.text) - len(CONTEXT)
    if kind == "heads":
        return list(heads(2)(o, o.text[-1])), None
    if kind == "guesses":
        return rng.integers(n, size=2).tolist(), None
    if kind == "all rejected":  # the chain leaves these out
        given = exact.sum(1) if at == 0 else exact[o.text[-1]]
        return [int(given.argmin())], None
    if kind == "all accepted":  # drawn from the target's own distribution
        given = exact.sum(1) if at == 0 else exact[o.text[-1]]
        drafts, proposals = [], []
        while at < 2:
            q = given / given.sum()
            drafts.append(int(rng.choice(n, p=q)))
            proposals.append(list(enumerate(q.tolist())))
            given, at = exact[drafts[-1]], at + 1
        return drafts, list(proposals)
    if kind in ("proposals", "lies"):
        q = rng.dirichlet(np.full(n, 0.5))
        drafts = [int(rng.choice(n, p=q))]
        return drafts, [list(enumerate((np.full(n, 1e-3) if kind == "lies" else q).tolist()))]
    return [], None


def _exact(o: Open) -> Table:
    n = o.model.n_vocab
    assert o.context.remove_from(len(CONTEXT) - 1)
    assert o.context.decode([CONTEXT[-1]], len(CONTEXT) - 1) == llama.OK
    first = _chain(o, CONTEXT, o.context.logits())
    table = np.zeros((n, n))
    for token in np.flatnonzero(first):
        assert o.context.remove_from(len(CONTEXT))
        assert o.context.decode([int(token)], len(CONTEXT)) == llama.OK
        table[token] = first[token] * _chain(o, [*CONTEXT, int(token)], o.context.logits())
    assert np.count_nonzero(table) > 30 and np.count_nonzero(table == 0) > 10, "the chain leaves something out"
    return table


def _chain(o: Open, text: list[int], logits: llama.Logits) -> Table:
    """Probabilities that the sampler chain leaves of a row of logits behind `text`."""
    lib = llama.library()
    items = (lib.llama_token_data * len(logits))(*((i, float(x), 0.0) for i, x in enumerate(logits)))
    array = lib.llama_token_data_array(items, len(items), -1, False)
    sampler = Sampler(o.model, FULL)
    sampler.accept(text)
    lib.llama_sampler_apply(sampler._chain, ctypes.byref(array))
    sampler.close()
    left = np.full(len(logits), -np.inf)
    for item in array.data[: array.size]:
        left[item.id] = item.logit
    weights = np.exp(left - left.max())
    found: Table = weights / weights.sum()
    return found


def _fits(found: Table, exact: Table) -> float:
    """p of Pearson's chi-square test that counts come from the probabilities `exact`; rare cells are joined."""
    a, expected = found.ravel(), (exact * found.sum()).ravel()
    assert a[expected == 0].sum() == 0, "what the chain leaves out never comes"
    rare = expected < 10
    a, expected = np.append(a[~rare], a[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    used = expected > 0
    return _tail(float((((a - expected)[used]) ** 2 / expected[used]).sum()), int(used.sum()) - 1)


def _same(a: Table, b: Table) -> float:
    """p of the test that two tables of counts come from one distribution."""
    a, b = a.ravel(), b.ravel()
    share = a.sum() / (a.sum() + b.sum())
    rare = (a + b) * min(share, 1 - share) < 10
    a, b = np.append(a[~rare], a[rare].sum()), np.append(b[~rare], b[rare].sum())
    used = a + b > 0
    a, b = a[used], b[used]
    expected = (a + b) * share
    statistic = ((a - expected) ** 2 / expected + (a - expected) ** 2 / (a + b - expected)).sum()
    return _tail(float(statistic), len(a) - 1)


def _tail(statistic: float, freedom: int) -> float:
    """Wilson and Hilferty's normal approximation of the chi-square distribution."""
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return 0.5 * math.erfc(z / math.sqrt(2))


@pytest.mark.parametrize("n", [1, 10, 127, 128, 129, 1000, 49152, 49155])
@pytest.mark.parametrize("keep", [1, 3, 64, 128])
def test_the_likeliest_of_any_row(n: int, keep: int) -> None:
    rng = np.random.default_rng((n, keep))
    rows = [rng.standard_normal(n), np.zeros(n), rng.integers(0, 4, n), np.sort(rng.standard_normal(n)), -np.ones(n)]
    rows.append(np.where(rng.random(n) < 0.9, -np.inf, rng.standard_normal(n)))
    for row in rows:
        logits = row.astype(np.float32)
        expected = np.argsort(-logits, kind="stable")[:keep]
        assert native.load().likeliest(logits.tobytes(), keep) == expected.tolist()
    logits = np.full(n, np.nan, np.float32)
    assert native.load().likeliest(logits.tobytes(), keep) == []
    logits[n // 2] = 1.0
    assert native.load().likeliest(logits.tobytes(), keep) == [n // 2]


@pytest.mark.parametrize("penalty", [1.0, 1.08, 1.5])
def test_a_greedy_choice_looks_at_a_few_tokens_and_finds_the_one_of_all(penalty: float, demo_model: Path) -> None:
    """A row of the demo model's logits again and again: the penalties make every choice another one."""
    prompt = list(range(40, 90))
    with opened(demo_model) as o:
        chosen = []
        for keep in (True, False):
            sampling = Resolved(temperature=0.0, repeat_penalty=penalty, frequency_penalty=(penalty - 1) / 2)
            sampler = o.start(prompt, sampling)
            assert sampler.keep == 128
            o.spec.begin(sampler.address, True, sampler.keep if keep else 0, 0)
            chosen.append([o.spec.sample() for _ in range(100)])
            sampler.close()
        assert chosen[0] == chosen[1]
        assert len(set(chosen[0])) > 10 or penalty == 1.0


def test_all_tokens_are_looked_at_where_a_few_are_not_enough(tiny_model: TinyModel) -> None:
    model = llama.Model.load(tiny_model("ten_tokens"))
    for changed in ({"repeat_penalty": 0.9}, {"presence_penalty": -0.1}, {"penalty_window": -1, "repeat_penalty": 1.1}):
        sampler = Sampler(model, Resolved(temperature=0.0, **changed))
        assert sampler.keep == 0
        sampler.close()
    model.close()
