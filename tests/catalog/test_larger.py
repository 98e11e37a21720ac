from __future__ import annotations

from dataclasses import replace

from model_fixtures import TinyModel

from strata_tui.catalog.estimate import EstimatedSizes, machine
from strata_tui.catalog.larger import larger
from strata_tui.engine.gguf_info import read_info
from strata_tui.engine.options import EngineOptions
from strata_tui.engine.plan import MIB, make_plan

OPTIONS = EngineOptions(gpu=-1, threads=1, context=256)


def test_the_next_size_that_is_enough(tiny_model: TinyModel) -> None:
    info, there = read_info(tiny_model("qwen3moe")), machine(OPTIONS)
    assert info.context_trained == 1024
    found = larger(info, there, OPTIONS, 256, 300)
    assert found.context == 512 and found.plan is not None and found.plan.context == 512
    assert found.plan == make_plan(info, EstimatedSizes(info), there, replace(OPTIONS, context=512))
    assert larger(info, there, OPTIONS, 256, 513).context == 1024
    assert larger(info, there, OPTIONS, 768, 800).context == 1024, "never more than it was trained for"
    found = larger(info, there, OPTIONS, 512, 5000)
    assert found.context == 1024 and found.plan is not None, "the largest there is, though it is too small"


def test_no_more_than_the_model_was_trained_for(tiny_model: TinyModel) -> None:
    info = read_info(tiny_model("qwen3moe"))
    for now in (1024, 2048):
        found = larger(info, machine(OPTIONS), OPTIONS, now, 3000)
        assert found.plan is None and found.why == "the model was trained for 1024 tokens"


def test_no_more_than_the_memory_allows(tiny_model: TinyModel) -> None:
    info = replace(read_info(tiny_model("qwen3moe")), context_trained=None)
    there = machine(OPTIONS)
    plan = make_plan(info, EstimatedSizes(info), there, replace(OPTIONS, slots=16, context=1024))
    room = (info.trunk_bytes + plan.kv + plan.compute + plan.arena + MIB // 4) / 2**30
    tight = replace(OPTIONS, slots=16, ram_gib=room)
    assert larger(info, there, tight, 512, 900).context == 1024
    enough = larger(info, there, tight, 512, 9000)
    assert enough.context == 1024 and enough.plan is not None, "what fits, though it is too small"
    found = larger(info, there, tight, 1024, 2000)
    assert found.plan is None and "a context of 2 048 tokens and 16 slots, but 11.9 MiB may be used" in found.why
