"""The measurement of acceptance, and of what windows change, on small models."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
from model_fixtures import TinyModel

from strata_tui.bench import add_parsers
from strata_tui.bench.drafts import Difference, Found, in_turn, penalised
from strata_tui.bench.prompts import PROMPTS
from strata_tui.engine.sampling import Resolved
from strata_tui.errors import UserError


def run(line: str) -> int:
    parser = argparse.ArgumentParser()
    add_parsers(parser.add_subparsers())
    args = parser.parse_args(line.split())
    code: int = args.run(args)
    return code


@pytest.mark.parametrize(("name", "exact"), [("glm4moe_echo", True), ("qwen3next_nextn", False)])
def test_a_run(
    name: str, exact: bool, tiny_model: TinyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    line = f"drafts {tiny_model(name)} --gpu -1 --threads 1 --prompts 4 --tokens 24 --drafts 3 --alone 3 --json {out}"
    assert run(line) == 0
    text = capsys.readouterr().out
    found = json.loads(out.read_text())
    assert "too few drafts" in text
    assert found["prompts"] == 4 and found["windows"] > 20
    assert found["offered"][0] >= found["offered"][2] > 0 == found["offered"][3]
    assert 0 < found["accepted"][0] < found["offered"][0]
    assert found["rows"] == found["same_rows"] == found["tokens"]
    assert 0 < found["compared"] < found["tokens"]
    if exact:
        assert max(found["rounding"]) < 1e-4 and not found["differences"]


def test_without_heads_it_says_so(tiny_model: TinyModel) -> None:
    with pytest.raises(UserError, match="nothing to measure, the model has no NextN heads"):
        run(f"drafts {tiny_model('qwen3moe')} --gpu -1")


def test_prompts_of_a_training_text_are_named(
    tiny_model: TinyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from strata_tui.engine.llama import Model

    path = tiny_model("glm4moe_echo")
    model = Model.load(path)
    talks = [model.tokenize(f"they said {p} so"[:40].ljust(40)) for p in (PROMPTS["chat"][8], "no")]
    model.close()
    size = max(map(len, talks))
    kept = tmp_path / "text.npz"
    np.savez_compressed(kept, tokens=np.array([t + [5] * (size - len(t)) for t in talks], np.uint16))
    assert PROMPTS["chat"][8] == "Why is the sky blue?"
    assert run(f"drafts {path} --gpu -1 --prompts 60 --tokens 2 --alone 0 --training-text {kept}") == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert line == "1 of 60 prompts stand in the 2 conversations of text.npz: Why is the sky blue?"
    with pytest.raises(UserError, match="holds no training text"):
        run(f"drafts {path} --gpu -1 --prompts 1 --training-text {path}")


def test_prompts_come_from_the_classes_in_turn() -> None:
    code, prose, chat = (PROMPTS[kind] for kind in ("code", "prose", "chat"))
    assert in_turn(5) == [code[0], prose[0], chat[0], code[1], prose[1]]
    assert len(in_turn(1000)) == len(set(in_turn(1000))) == 60


def test_a_difference_is_explained_by_rounding_or_not() -> None:
    found = Found(rounding=[0.004, 0.02])
    found.differences.append(Difference(1, 2, "a", "b", 0.012, 0.006))
    assert found.explained
    found.differences.append(Difference(1, 3, "a", "b", 0.015, 0.006))
    assert not found.explained


def test_penalties_are_llama_cpps(tiny_model: TinyModel) -> None:
    import ctypes

    from strata_tui.engine import llama
    from strata_tui.engine.sampler import Sampler

    model = llama.Model.load(tiny_model("qwen3moe"))
    rng = np.random.default_rng(0)
    row = rng.standard_normal(model.n_vocab).astype(np.float32)
    sampling = Resolved(
        temperature=0, repeat_penalty=1.3, presence_penalty=0.2, frequency_penalty=0.1, penalty_window=16
    )
    text = rng.integers(0, 12, 40).tolist()
    lib = llama.library()
    items = (lib.llama_token_data * len(row))(*((i, float(x), 0.0) for i, x in enumerate(row)))
    array = lib.llama_token_data_array(items, len(items), -1, False)
    sampler = Sampler(model, sampling)
    sampler.accept(text)
    lib.llama_sampler_apply(sampler._chain, ctypes.byref(array))
    theirs = {item.id: item.logit for item in array.data[: array.size]}
    sampler.close()
    model.close()
    ours = penalised(row, text, sampling)
    assert np.abs(ours - [theirs[i] for i in range(len(row))]).max() < 1e-6
    assert not np.array_equal(ours, row)
