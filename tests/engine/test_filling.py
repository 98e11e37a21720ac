"""The mirror is filled beside replies: in steps, with a small share of a reply's time, and as far as the limit."""

from __future__ import annotations

import logging

from model_fixtures import TinyModel

from strata_tui.engine import gguf_info
from strata_tui.engine.filling import Mirror
from strata_tui.engine.llama import LowLevel

LOG = logging.getLogger(__name__)


def size(model: LowLevel) -> int:
    assert model.tier is not None
    return int(str(model.tier.modes()["mirror"]))


def test_steps_fill_it_and_it_can_be_asked_for_again(tiny_model: TinyModel) -> None:
    path = tiny_model("qwen3moe")
    with LowLevel(path, slots=16, context=256) as model:
        assert model.tier is not None
        whole = model.tier.arena_bytes(model.tier.n_experts)
        mirror = Mirror(model.tier, whole // 2, LOG)
        assert mirror.filling
        while mirror.filling:
            mirror.step()
        assert size(model) == whole // 2
        mirror.ask_again()
        assert not mirror.filling  # the limit is reached: there is nothing to ask for
        logits = model.decode([5, 6, 7])
        model.tier.verify(64, 1)
    with LowLevel(path, slots=16, context=256) as plain:
        assert plain.decode([5, 6, 7]).tobytes() == logits.tobytes()


def test_between_rounds_it_takes_a_small_share_of_the_time(tiny_model: TinyModel) -> None:
    path = tiny_model("qwen3moe")
    with LowLevel(path, slots=16, context=256) as model:
        mirror = Mirror(model.tier, gguf_info.read_info(path).expert_bytes, LOG)  # type: ignore[arg-type]
        mirror._cost = 3600.0  # as if a step had taken an hour: none is due for ten
        mirror.between_rounds()
        assert size(model) == 0
        mirror._cost = 0.0
        mirror.between_rounds()
        assert size(model) > 0


def test_without_a_limit_there_is_none(tiny_model: TinyModel) -> None:
    with LowLevel(tiny_model("qwen3moe"), slots=16, context=256) as model:
        mirror = Mirror(model.tier, 0, LOG)  # type: ignore[arg-type]
        mirror.between_rounds()
        mirror.ask_again()
        assert not mirror.filling
        assert size(model) == 0
