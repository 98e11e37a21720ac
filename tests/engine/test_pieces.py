"""Pieces of short graphs that the inner backend is to know again (engine_ext/piece.c): no bit changes by that."""

from __future__ import annotations

from pathlib import Path

import models
import numpy as np
import pytest
from model_fixtures import TinyModel

from strata_tui.engine import gguf_info, native
from strata_tui.engine.llama import Logits, LowLevel

LENGTHS = (1, 2, 1, 1, 5, 5, 1, 3, 2, 2, 2, 1, 4, 4, 8, 9, 1, 1, 1, 2, 1)  # of windows, each of some three times in all


def windows(path: Path, slots: int, device: str, *, keep: bool, change: bool = False) -> list[Logits]:
    """Logits behind each window of a text; `change`: what is kept changes in the middle."""
    rng = np.random.default_rng(11)
    with LowLevel(path, slots=slots, device=device, context=1024) as model:
        assert model.tier is not None
        rows = [model.decode([int(t) for t in rng.integers(3, model.model.n_vocab, 40)])]
        for i, n in enumerate(LENGTHS * 4):
            model.tier.keep_pieces(keep != (change and i >= 2 * len(LENGTHS)))
            rows.append(model.decode([int(t) for t in rng.integers(3, model.model.n_vocab, n)]))
        model.tier.verify(64, 1)
        assert model.tier.counters()["prompt"]["misses"] > 0
    return rows


def compare(path: Path, device: str) -> None:
    total = sum(group[1] for group in gguf_info.expert_groups(gguf_info.read_info(path)))
    for slots in (total, total // 2):
        expected = windows(path, slots, device, keep=False)
        for keep, change in ((True, False), (False, True), (True, True)):
            got = windows(path, slots, device, keep=keep, change=change)
            assert all(a.tobytes() == b.tobytes() for a, b in zip(got, expected, strict=True)), (slots, keep, change)


@pytest.mark.parametrize("name", models.MOE_MODELS)
def test_kept_pieces_change_no_bit(name: str, tiny_model: TinyModel) -> None:
    compare(tiny_model(name), "CPU")


@pytest.mark.gpu
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name in models.MOE_MODELS if name != "grovemoe"])
def test_nor_on_a_gpu(name: str, tiny_model: TinyModel) -> None:
    device = native.pick_device(None)
    compare(tiny_model(name), device)
