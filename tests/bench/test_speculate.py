"""The measurement of drafts, on a small model: costs, pairs and verdicts."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from model_fixtures import TinyModel

from strata_tui.bench import add_parsers
from strata_tui.bench.prompts import PROMPTS
from strata_tui.bench.report import wilson
from strata_tui.bench.speculate import Result, verdicts
from strata_tui.bench.speculate_curve import Curve, most


def run(line: str) -> int:
    parser = argparse.ArgumentParser()
    add_parsers(parser.add_subparsers())
    args = parser.parse_args(line.split())
    code: int = args.run(args)
    return code


def test_a_run(tiny_model: TinyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    line = f"speculate {tiny_model('glm4moe_echo')} --gpu -1 --threads 1 --prompts 2 --warm 1 --tokens 16 --curve 2"
    assert run(f"{line} --classes chat --arms off 2 auto --slots-fraction 1 0.5 --json {out}") == 0
    text = capsys.readouterr().out
    assert "tokens a window" in text and "c(n)/c(1)" in text and "50% of 32 slots" in text
    assert text.count("undecided, a verdict takes 15 pairs") == 2
    for share in json.loads(out.read_text())["shares"]:
        found = {r["arm"]: r for r in share["results"]}
        assert set(found) == {"off", "2", "auto"}
        assert found["off"]["rates"] == found["off"]["beside"]
        assert found["off"]["tokens"] == found["off"]["windows"] > 0
        assert found["2"]["offered"][0] > 0 and found["2"]["offered"][2] == 0
        assert found["2"]["same"] == 2, "this model's windows round as single tokens do"
        assert [len(share["curve"]["windows"][str(n)]) for n in range(1, 6)] == [2] * 5


def test_wilson() -> None:
    assert wilson(50, 100) == "50.0% (40.4% to 59.6%)"


def _curve(*costs: float) -> Curve:
    return Curve({n: [cost] for n, cost in enumerate(costs, 1)}, [1.0])


def test_what_is_possible_at_most() -> None:
    cheap = _curve(1.0, 1.1, 1.2, 1.3, 1.4)
    assert most(cheap, [0.6, 0.36, 0.2, 0.1], 0.0) == (pytest.approx(2.16 / 1.3), 3)
    assert most(cheap, [0.6, 0.36, 0.2, None], 0.1) == (pytest.approx(1.96 / 1.4), 2)
    assert most(_curve(1.0, 1.9, 2.8, 3.7, 4.6), [0.6, 0.36, 0.2, 0.1], 0.1) == (1.0, 0)


def _results(ratio: float, pairs: int) -> dict[tuple[str, str], Result]:
    return {("chat", "auto"): Result(rates=[100 * ratio] * pairs, beside=[100.0] * pairs, gate="on: NextN pays")}


@pytest.mark.parametrize(
    ("ratio", "pairs", "resident", "words"),
    [
        (1.5, 15, True, "1.4 is reached"),
        (1.3, 15, True, "1.4 is not reached"),
        (0.98, 15, False, "never below 0.97 holds"),
        (0.96, 15, False, "never below 0.97 does not hold"),
        (2.0, 14, False, "undecided"),
    ],
)
def test_verdicts(ratio: float, pairs: int, resident: bool, words: str) -> None:
    first, gate = verdicts(_results(ratio, pairs), _curve(1.0, 1.0, 1.0, 1.0, 1.0), resident)
    assert words in first
    assert gate == "  on: NextN pays"


def test_there_are_prompts_enough_and_none_twice() -> None:
    every = [p for prompts in PROMPTS.values() for p in prompts]
    assert len(every) == len(set(every)) >= 50
