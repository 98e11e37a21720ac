"""Picks and hits by layer: together the same as those of all layers, whichever way a batch went."""

from __future__ import annotations

import pytest
from model_fixtures import TinyModel
from reading import tokens_of

from strata_tui.engine import native
from strata_tui.engine.llama import LowLevel


@pytest.mark.parametrize("slots", [8, 24, 64])
@pytest.mark.parametrize("stream", [None, (16, 2.0, True)])
def test_layers_add_up(slots: int, stream: tuple[int, float, bool] | None, tiny_model: TinyModel) -> None:
    core = native.load()
    with LowLevel(tiny_model("qwen3moe"), context=256, batch=64, slots=slots, stream=stream) as model:
        tier = model.tier
        assert tier is not None
        assert tier.layers() == [(layer, (0, 0), (0, 0)) for layer in range(4)]
        tier.set_phase(core.PHASE_PROMPT)
        model.decode(tokens_of(model, 90, 1), all_logits=True)
        tier.set_phase(core.PHASE_DECODE)
        for token in tokens_of(model, 10, 2):
            model.decode([token])
        total, layers = tier.counters(), tier.layers()
        for place, (phase, tokens) in enumerate((("prompt", 90), ("decode", 10)), 1):
            assert [one[place][0] for one in layers] == [4 * tokens] * 4, "4 experts a token in each layer"
            assert sum(one[place][0] for one in layers) == total[phase]["picks"]
            assert sum(one[place][1] for one in layers) == total[phase]["hits"]
        if slots < 64:
            assert any(one[2][1] < one[2][0] for one in layers)
