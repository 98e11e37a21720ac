from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
from model_fixtures import TinyModel

from strata_tui.bench import page_cache, prompt
from strata_tui.bench.report import bootstrap_ratio
from strata_tui.errors import UserError


def args(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    prompt.add_parser(parser.add_subparsers())
    return parser.parse_args(["prompt", *words])


def test_the_ratio_of_equal_arms_is_one() -> None:
    assert bootstrap_ratio([3.0, 5.0, 8.0], [3.0, 5.0, 8.0]) == pytest.approx((1, 1, 1))
    assert bootstrap_ratio([2.0], [4.0]) == pytest.approx((0.5, 0.5, 0.5))


def test_pairs_take_out_what_their_rounds_have_in_common() -> None:
    rounds = np.array([100.0, 20.0, 55.0, 80.0, 31.0] * 3)  # a machine that is busy now and then
    ratio, low, high = bootstrap_ratio((0.97 * rounds).tolist(), rounds.tolist())
    assert (ratio, low, high) == pytest.approx((0.97, 0.97, 0.97))


def test_the_interval_covers_what_is_true() -> None:
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(200):
        a, b = (100 * np.exp(0.1 * rng.standard_normal(15)) for _ in range(2))
        ratio, low, high = bootstrap_ratio((0.98 * a).tolist(), b.tolist(), resamples=500)
        assert low <= ratio <= high
        covered += low <= 0.98 <= high
    assert 0.85 * 200 < covered < 0.99 * 200


def test_the_verdict_is_on_the_arm_that_auto_is_worst_beside() -> None:
    slow = prompt.Arm("ram", 2, 0, rates=[10, 11, 10] * 5, beside=[20, 22, 20] * 5)
    fast = prompt.Arm("ssd", 16, 0, rates=[20, 21, 22] * 5, beside=[20, 21, 22] * 5)
    auto = prompt.Arm("auto", 0, 0, rates=slow.beside + fast.beside)
    found = prompt.verdict([slow, auto, fast])
    assert (found.chosen, found.ratio, found.pairs, found.holds) == ("ssd 16", pytest.approx(1), 15, True)
    slow.beside = [9, 10, 9] * 5
    assert not prompt.verdict([slow, auto, fast]).holds
    assert prompt.verdict([slow, auto, fast]).chosen == "ram 2"
    assert "undecided" in str(prompt.verdict([slow, auto, fast]))
    fast.rates, fast.beside = fast.rates[:14], fast.beside[:14]
    assert not prompt.verdict([auto, fast]).holds  # too few pairs


def test_all_arms_warm_and_cold(tiny_model: TinyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, found = tiny_model("qwen3moe"), tmp_path / "found.json"
    cache = ["warm", "cold"]
    try:
        page_cache.make_cold([path])
    except UserError:
        cache = ["warm"]
    few = ["--prompt", "96", "--batch", "32", "--rounds", "1", "--threads", "1", "--mirror-gib", "0.001"]
    asked = args(str(path), "--gpu", "-1", "--json", str(found), "--cache", *cache, *few)
    assert asked.run(asked) == 0
    told = json.loads(found.read_text())
    out = capsys.readouterr().out
    assert told["equal"]
    assert "logits of all arms: equal" in out
    for kind in cache:
        arms = told[kind]["arms"]
        assert len(arms) == 14
        assert [len(arm["rates"]) for arm in arms] == 2 * [*[1] * 6, 6]
        assert [len(arm["beside"]) for arm in arms] == 2 * [*[1] * 6, 0]
        assert {arm["mirror"] > 0 for arm in arms} == {False, True}
        [auto, _] = [arm for arm in arms if arm["profile"] == "auto"]
        assert auto["asks"] > [0]
        assert f"{kind}, no mirror: auto / " in out
        assert f"{kind}, mirror: auto / " in out


def test_files_that_stay_are_not_called_cold(tiny_model: TinyModel) -> None:
    path = tiny_model("qwen3moe")
    try:
        page_cache.make_cold([path])
    except UserError as error:
        pytest.skip(str(error))
    import mmap

    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[::4096]) >= 0  # every page is mapped now, so none can be dropped
        with pytest.raises(UserError, match="is not cold: .* another program has it mapped"):
            page_cache.make_cold([path])
    page_cache.make_cold([path])
    page_cache.make_warm([path])
    assert page_cache.cached_share([path]) == 1


def test_beside_plain_llama_cpp_wants_a_gpu(tiny_model: TinyModel) -> None:
    asked = args(str(tiny_model("qwen3moe")), "--plain", "--gpu", "-1")
    with pytest.raises(UserError, match="compares prompts on a GPU"):
        asked.run(asked)


def test_a_model_without_experts_is_refused(tiny_model: TinyModel) -> None:
    asked = args(str(tiny_model("llama_dense")), "--gpu", "-1")
    with pytest.raises(UserError, match="has no experts"):
        asked.run(asked)
