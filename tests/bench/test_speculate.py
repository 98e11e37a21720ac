"""The measurement of drafts, on a small model, and its intervals."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from model_fixtures import TinyModel

from strata_tui.bench import add_parsers
from strata_tui.bench.prompts import PROMPTS
from strata_tui.bench.speculate import interval, wilson


def test_a_run(tiny_model: TinyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_parsers(parser.add_subparsers())
    out = tmp_path / "out.json"
    line = f"speculate {tiny_model('glm4moe_echo')} --gpu -1 --threads 1 --prompts 2 --warm 1 --tokens 16"
    args = parser.parse_args([*line.split(), "--classes", "chat", "--arms", "off", "2", "auto", "--json", str(out)])
    assert args.run(args) == 0
    assert "tokens a window" in capsys.readouterr().out
    found = {r["arm"]: r for r in json.loads(out.read_text())["results"]}
    assert set(found) == {"off", "2", "auto"}
    assert found["off"]["ratios"] == [1.0, 1.0]
    assert found["off"]["tokens"] == found["off"]["windows"] > 0
    assert found["2"]["offered"][0] > 0 and found["2"]["offered"][2] == 0
    assert found["2"]["same"] == 2, "this model's windows round as single tokens do"


def test_intervals() -> None:
    assert wilson(50, 100) == "50.0% (40.4% to 59.6%)"
    assert interval([1.0, 1.0, 1.0]) == "1.000 (1.000 to 1.000)"
    assert interval([1.1] * 8 + [1.3] * 8).startswith("1.196 (1.1")


def test_there_are_prompts_enough_and_none_twice() -> None:
    every = [p for prompts in PROMPTS.values() for p in prompts]
    assert len(every) == len(set(every)) >= 50
