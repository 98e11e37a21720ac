"""The small random models are what the other tests take them for."""

from __future__ import annotations

from pathlib import Path

import models
import numpy as np
import pytest
from gguf import GGUFReader
from model_fixtures import TinyModel

from strata_tui.demo.taps import TappedModel
from strata_tui.engine.gguf_info import read_info

TEXT = "the people of water said that their expert could find a long way, and so it was"


@pytest.mark.parametrize("name", models.MODELS)
def test_llama_cpp_runs_it(name: str, tiny_model: TinyModel) -> None:
    with TappedModel(tiny_model(name), r"ffn_moe_topk-\d+", context=256) as model:
        logits = model.decode(model.tokenize(TEXT))
        for _ in range(20):
            assert np.isfinite(logits).all()
            assert logits.std() > 0.5
            logits = model.decode([int(logits.argmax())])
        ids = {tap: np.concatenate(picks) for tap, picks in model.taps.items()}
    assert bool(ids) == (name in models.MOE_MODELS)
    for picks in ids.values():
        sets = {tuple(sorted(row)) for row in picks}
        assert len(sets) > len(TEXT.split()) / 2, "tokens must not all pick the same experts"
        assert len(np.unique(picks)) > models.EXPERTS / 2


@pytest.mark.parametrize("name", models.MOE_MODELS)
def test_no_two_experts_share_their_bytes(name: str, tiny_model: TinyModel) -> None:
    info = read_info(tiny_model(name))
    seen: set[bytes] = set()
    count = 0
    for shard in info.shards:
        for tensor in GGUFReader(shard).tensors:
            if "exps" in tensor.name and tensor.name.endswith(".weight"):
                for expert in tensor.data:
                    seen.add(expert.tobytes())
                    count += 1
    assert count >= 6 * models.EXPERTS
    assert len(seen) == count


def test_the_same_seed_writes_the_same_file(tmp_path: Path) -> None:
    first, again, other = (models.gpt_oss(tmp_path / f"{i}.gguf", seed=i // 2) for i in range(3))
    assert first.read_bytes() == again.read_bytes() != other.read_bytes()
