"""The tier against plain llama.cpp: on the CPU device every logit is the same, byte for byte.

Both sides run with extra buffer types off and equal threads, ubatch and flash attention. Every arm below
"all slots" must see misses and evictions, or it would prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import models
import numpy as np
import pytest
from model_fixtures import TinyModel
from reading import experts_of, read_and_write, tokens_of

from strata_tui.engine import gguf_info, native
from strata_tui.engine.llama import Logits, LowLevel

PROMPTS = (1, 31, 33, 700)
DECODED = 6
CONTEXT = 1024

# (slots, pool buffers, mean copy delay in microseconds): a small cover, and every slot count of the promise
ARMS = {
    "floor": ("floor", 2, 0),
    "floor, slow copies": ("floor", 16, 40),
    "half": ("half", 16, 0),
    "half, slow copies, two buffers": ("half", 2, 40),
    "all": ("all", 2, 0),
}


def run(model: LowLevel, prompt: int) -> Logits:
    return read_and_write(model, prompt, DECODED)


def slot_count(path: Path, kind: str) -> int:
    total = experts_of(path)
    return {"floor": 1, "half": total // 2, "all": total}[kind]


def references(path: Path) -> list[Logits]:
    with LowLevel(path, tier=False, context=CONTEXT) as plain:
        return [run(plain, n) for n in PROMPTS]


@pytest.fixture(scope="module")
def reference(tiny_model: TinyModel) -> Iterator[dict[str, list[Logits]]]:
    """Plain llama.cpp's logits by model, made when first asked for."""

    class Lazy(dict[str, list[Logits]]):
        def __missing__(self, name: str) -> list[Logits]:
            self[name] = references(tiny_model(name))
            return self[name]

    yield Lazy()


def same(a: Logits, b: Logits) -> bool:
    return a.tobytes() == b.tobytes()


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("name", models.MOE_MODELS)
def test_logits_are_those_of_plain_llama_cpp(
    name: str, arm: str, tiny_model: TinyModel, reference: dict[str, list[Logits]]
) -> None:
    path = tiny_model(name)
    kind, pool, delay = ARMS[arm]
    slots = slot_count(path, kind)
    with LowLevel(path, slots=slots, context=CONTEXT, pool_buffers=pool, copy_delay_us=delay, copy_seed=7) as model:
        assert model.tier is not None
        for prompt, expected in zip(PROMPTS, reference[name], strict=True):
            assert same(run(model, prompt), expected), f"prompt of {prompt} tokens"
        model.tier.verify(64, 1)
        counters = model.tier.counters()["prompt"]
        assert counters["misses"] > 0
        assert counters["picks"] == counters["hits"] + counters["misses"]
        assert (counters["evictions"] > 0) == (kind != "all")
        assert model.tier.arena()["slots_total"] == max(slots, model.tier.min_slots())
        if kind == "floor":
            assert counters["split_passes"] > 0


@pytest.mark.parametrize("name", models.MOE_MODELS)
def test_serving_the_next_expert_is_seen(name: str, tiny_model: TinyModel, reference: dict[str, list[Logits]]) -> None:
    core = native.load()
    with LowLevel(tiny_model(name), context=CONTEXT, fault=core.FAULT_NEXT_EXPERT) as model:
        assert not same(run(model, PROMPTS[1]), reference[name][1])
        assert model.tier is not None
        with pytest.raises(core.Error, match="does not hold expert"):
            model.tier.verify(1000, 1)


def test_a_dense_model_passes_through(tiny_model: TinyModel) -> None:
    path = tiny_model("llama_dense")
    with LowLevel(path, context=CONTEXT) as model, LowLevel(path, tier=False, context=CONTEXT) as plain:
        assert same(run(model, 33), run(plain, 33))
        assert model.tier is not None
        assert model.tier.counters()["prompt"]["picks"] == 0


def test_modes_change_between_rounds_and_nothing_else_does(
    tiny_model: TinyModel, reference: dict[str, list[Logits]]
) -> None:
    core = native.load()
    path = tiny_model("qwen3moe")
    with LowLevel(path, slots=slot_count(path, "half"), context=CONTEXT, copy_delay_us=40, copy_seed=3) as model:
        tier = model.tier
        assert tier is not None
        tokens = tokens_of(model, 33, 33)
        generation = int(str(tier.modes()["generation"]))
        rows = []
        pins = (core.PIN_ON, core.PIN_OFF, core.PIN_AUTO)
        profiles = (core.STAGER_SSD, core.STAGER_RAM, core.STAGER_AUTO)
        with LowLevel(path, tier=False, context=CONTEXT) as plain:
            for i, token in enumerate(tokens):
                tier.set_modes(pins[i % 3], profiles[i % 3])
                rows.append((model.decode([token]), plain.decode([token])))
        assert all(same(a, b) for a, b in rows)
        modes = tier.modes()
        assert modes["generation"] == generation + len(tokens)
        assert modes["pinning"] == "not applicable"
        assert "no GPU" in str(modes["pinning_reason"])
        assert modes["pinned"] == 0
        assert tier.counters()["prompt"]["evictions"] > 0


@pytest.mark.parametrize("slots", ["floor", "third", "all"])
def test_the_demo_model_writes_what_plain_llama_cpp_writes(slots: str, demo_model: Path) -> None:
    total = slot_count(demo_model, "all")
    count = {"floor": 1, "third": total // 3, "all": total}[slots]
    prompt = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"

    def reply(model: LowLevel) -> tuple[list[int], Logits]:
        rows = [model.decode(model.tokenize(prompt), all_logits=True)]
        out = []
        for _ in range(12):
            out.append(int(rows[-1][-1].argmax()))
            rows.append(model.decode([out[-1]])[None])
        return out, np.concatenate(rows)

    with LowLevel(demo_model, tier=False, context=256) as plain:
        expected, expected_logits = reply(plain)
        text = b"".join(plain.model.piece(token) for token in expected).decode()
    assert "Paris" in text
    with LowLevel(demo_model, slots=count, context=256) as model:
        written, logits = reply(model)
        assert written == expected
        assert same(logits, expected_logits)
        assert model.tier is not None
        counters = model.tier.counters()["prompt"]
        assert (counters["evictions"] > 0) == (slots != "all")
    core = native.load()
    with LowLevel(demo_model, context=256, fault=core.FAULT_NEXT_EXPERT) as wrong:
        assert not same(reply(wrong)[1], expected_logits)


def test_loading_reads_the_trunk_and_no_expert(demo_model: Path) -> None:
    core = native.load()
    from strata_tui.engine.llama import Model

    info = gguf_info.read_info(demo_model)
    tier = core.Tier("CPU", [str(demo_model)], gguf_info.expert_groups(info))
    stream = tier.open_stream(gguf_info.load_segments(info))
    model = Model.load(demo_model, tier=tier, stream=stream, pattern=gguf_info.override_pattern(info))
    read = stream.bytes_read
    stream.close()
    model.close()
    tier.close()
    metadata = min(tensor.file_offset for tensor in info.tensors)
    head = sum(t.nbytes for t in info.tensors if t.name.startswith("blk.30.") and "_exps" not in t.name)
    trunk = info.trunk_bytes - head  # its NextN block is not loaded where nothing is drafted
    assert trunk < read <= 1.01 * (trunk + metadata)
