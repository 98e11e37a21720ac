"""Prompts whose experts stream through a ring against plain llama.cpp: on the CPU device every logit is the same,
byte for byte, and so is what comes after them: replies, cancels, other rings.

With a compute delay the CPU device computes on a thread of its own, so that copies and computing overlap as on a GPU.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import models
import pytest
from model_fixtures import TinyModel
from reading import experts_of, read_and_write, tokens_of

from strata_tui.engine import gguf_info, native
from strata_tui.engine.llama import Logits, LowLevel

FROM = 8  # tokens from which a batch streams
PROMPTS = (33, 700)
DECODED = 5
CONTEXT = 1024
MEMORY = ("lent", "own")
UNITS: tuple[float | str, ...] = (1.2, 2.0, 3.0, "two layers")
MIRRORS = {"none": 0.0, "half": 0.5, "all": 1.1}  # of the experts' bytes in slots
POOLS = (2, 16, 128)
DELAYS = (0, 30)  # of copies and of computing


@dataclass(frozen=True)
class Arm:
    model: str
    units: float | str
    memory: str
    mirror: str
    pool: int
    delay: int

    def __str__(self) -> str:
        computes = "computes beside copies" if self.delay else "computes at once"
        return f"{self.model}, {self.memory}, {self.units}, mirror {self.mirror}, pool {self.pool}, {computes}"


def arms() -> Iterator[Arm]:
    for (i, model), (j, units) in itertools.product(enumerate(models.MOE_MODELS), enumerate(UNITS)):
        # no two layers fit what the slots could lend
        memory = "own" if units == "two layers" else MEMORY[(i + j) % 2]
        yield Arm(
            model, units, memory, list(MIRRORS)[(i + j) % 3], POOLS[(i + 2 * j + i // 3) % 3], DELAYS[(i // 2 + j) % 2]
        )


ARMS = list(arms())


def test_the_arms_cover_every_pair() -> None:
    values = {
        "model": tuple(models.MOE_MODELS),
        "units": UNITS,
        "memory": MEMORY,
        "mirror": tuple(MIRRORS),
        "pool": POOLS,
        "delay": DELAYS,
    }
    for a, b in itertools.combinations(values, 2):
        seen = {(getattr(arm, a), getattr(arm, b)) for arm in ARMS}
        assert set(itertools.product(values[a], values[b])) - seen <= {("two layers", "lent")}, (a, b)


def run(model: LowLevel, prompt: int) -> Logits:
    return read_and_write(model, prompt, DECODED)


@pytest.fixture(scope="module")
def reference(tiny_model: TinyModel) -> Iterator[dict[str, list[bytes]]]:
    """Plain llama.cpp's logits by model and prompt, made when first asked for."""

    class Lazy(dict[str, list[bytes]]):
        def __missing__(self, name: str) -> list[bytes]:
            with LowLevel(tiny_model(name), tier=False, context=CONTEXT) as plain:
                self[name] = [run(plain, n).tobytes() for n in PROMPTS]
            return self[name]

    yield Lazy()


def set_ring(model: LowLevel, units: float | str, own: bool) -> None:
    tier = model.tier
    assert tier is not None
    size = 2 * tier.stream_layer if units == "two layers" else int(float(units) * tier.stream_unit)
    tier.set_stream(FROM, size, own)


@pytest.mark.parametrize("arm", ARMS, ids=str)
def test_logits_are_those_of_plain_llama_cpp(
    arm: Arm, tiny_model: TinyModel, reference: dict[str, list[bytes]]
) -> None:
    path = tiny_model(arm.model)
    with LowLevel(
        path,
        slots=experts_of(path) * 3 // 4,
        context=CONTEXT,
        pool_buffers=arm.pool,
        copy_delay_us=arm.delay,
        compute_delay_us=arm.delay,
        copy_seed=9,
    ) as model:
        tier = model.tier
        assert tier is not None
        if arm.mirror != "none":
            tier.fill_mirror(int(MIRRORS[arm.mirror] * tier.arena_bytes(tier.n_experts)))
        tier.prefill()
        before = tier.residents()
        set_ring(model, arm.units, arm.memory == "own")
        tokens = tokens_of(model, PROMPTS[0], 1)
        model.decode(tokens)
        lent = tier.stream()["lent"]
        assert (lent > 0) == (arm.memory == "lent")
        assert len(tier.residents()) == len(before) - lent
        tier.set_stream(0)  # gives back what was lent
        assert tier.stream()["lent"] == 0 and tier.residents() == before
        set_ring(model, arm.units, arm.memory == "own")
        for prompt, expected in zip(PROMPTS, reference[arm.model], strict=True):
            assert run(model, prompt).tobytes() == expected, f"prompt of {prompt} tokens"
            assert tier.stream()["lent"] == 0
        tier.verify(300, 1)
        counters = tier.counters()["prompt"]
        assert counters["streamed"] > 0 < counters["moved"]
        assert counters["picks"] == counters["hits"] + counters["misses"]
        assert counters["loads"] == counters["loads_mirror"] + counters["loads_staged"]
        assert (counters["loads_mirror"] > 0) == (arm.mirror != "none")
        assert (counters["loads_staged"] > 0) == (arm.mirror != "all")
        assert counters["split_passes"] == 0


@pytest.mark.parametrize("own", [False, True], ids=MEMORY)
@pytest.mark.parametrize("name", ["qwen3moe", "deepseek2_fused"])
def test_experts_that_are_all_resident_are_read_in_place(
    name: str, own: bool, tiny_model: TinyModel, reference: dict[str, list[bytes]]
) -> None:
    with LowLevel(tiny_model(name), context=CONTEXT, compute_delay_us=20, copy_delay_us=20) as model:
        tier = model.tier
        assert tier is not None
        set_ring(model, 2.0, own)
        assert tier.prefill() == tier.n_experts
        for prompt, expected in zip(PROMPTS, reference[name], strict=True):
            assert run(model, prompt).tobytes() == expected
            assert tier.stream()["lent"] == 0
        counters = tier.counters()["prompt"]
        assert counters["streamed"] == counters["loads"] == counters["misses"] == 0 < counters["hits"]


@pytest.mark.parametrize("batch", [256, 512, 2048])
def test_each_batch_is_that_of_plain_llama_cpp(batch: int, tiny_model: TinyModel) -> None:
    path, prompt, context = tiny_model("gpt_oss"), 2100, 2120
    with LowLevel(path, tier=False, context=context, batch=batch) as plain:
        expected = run(plain, prompt)
    slots = experts_of(path) // 2
    with LowLevel(path, slots=slots, stream=(FROM, 2, False), context=context, batch=batch) as model:
        assert run(model, prompt).tobytes() == expected.tobytes()
        assert model.tier is not None
        batches = -(-prompt // batch)
        assert model.tier.counters()["prompt"]["streamed"] == batches * model.tier.n_experts


@pytest.mark.parametrize("units", [2.0, "two layers"])
def test_serving_the_next_expert_is_seen(
    units: float | str, tiny_model: TinyModel, reference: dict[str, list[bytes]]
) -> None:
    path = tiny_model("qwen3moe")
    fault = native.load().FAULT_NEXT_EXPERT
    with LowLevel(path, slots=experts_of(path) // 2, context=CONTEXT, fault=fault) as model:
        set_ring(model, units, own=True)
        assert run(model, PROMPTS[0]).tobytes() != reference["qwen3moe"][0]
        assert model.tier is not None and model.tier.counters()["prompt"]["streamed"] > 0


# Cancel


@pytest.mark.parametrize("delay", DELAYS, ids=["computes at once", "computes beside copies"])
def test_after_a_cancel_all_is_as_after_a_fresh_start(
    delay: int, tiny_model: TinyModel, reference: dict[str, list[bytes]]
) -> None:
    """At random moments of a long prompt, through lent slots."""
    path = tiny_model("qwen3moe")
    moments = random.Random(delay)
    cancelled = 0
    with LowLevel(
        path,
        slots=experts_of(path) // 2,
        context=4200,
        stager_threads=2,
        stream=(FROM, 1.3, False),
        compute_delay_us=delay,
        copy_delay_us=delay,
    ) as model:
        tier = model.tier
        assert tier is not None
        tier.prefill()
        before = tier.residents()
        tokens = tokens_of(model, 4096, 2)
        begun = time.monotonic()
        model.decode(tokens)
        whole = time.monotonic() - begun
        expected = reference["qwen3moe"][0]
        assert run(model, PROMPTS[0]).tobytes() == expected
        threads = len(os.listdir("/proc/self/task"))
        for _ in range(10):
            model.clear()
            timer = threading.Timer(moments.uniform(0, whole), tier.cancel, (True,))
            timer.start()
            try:
                model.decode(tokens)
            except RuntimeError as error:
                assert str(error).startswith("llama_decode returned 2")  # aborted
                cancelled += 1
            timer.cancel()
            timer.join()
            tier.cancel(False)
            progress = tier.stream()
            assert progress["total"] == 0 and not progress["filling"]
            assert run(model, PROMPTS[0]).tobytes() == expected
            assert tier.stream()["lent"] == 0
            tier.verify(200, 1)
        assert cancelled >= 3  # else the moments were not within the prompt
        assert len(os.listdir("/proc/self/task")) == threads
        # Nothing was lost: no give-back was cut short.
        assert len(tier.residents()) == len(before)


# The ring's size


def test_a_ring_that_does_not_fit_is_refused_with_a_sentence(tiny_model: TinyModel) -> None:
    core = native.load()
    path = tiny_model("qwen3moe")
    with LowLevel(path, slots=experts_of(path) // 2, context=256) as model:
        tier = model.tier
        assert tier is not None
        unit = tier.stream_unit
        kib = unit // 1024
        assert unit % 1024  # the sentence rounds
        slots = tier.slot_bytes * (experts_of(path) // 4) // 1024  # there are two sizes of experts: the larger lends
        refused = [
            (unit - 1, True, f"a ring of {kib} KiB is too small: one unit takes {kib + 1} KiB"),
            (0, False, f"a ring of 0 KiB is too small: one unit takes {kib + 1} KiB"),
            (
                1 << 40,
                False,
                f"a ring of {1 << 30} KiB is larger than the slots that could be lent for it, {slots} KiB",
            ),
            (1 << 50, True, f"CPU cannot give {1 << 40} KiB for the ring"),
        ]
        for size, own, sentence in refused:
            tier.set_stream(FROM, 2 * unit, True)
            with pytest.raises(core.Error) as caught:
                tier.set_stream(FROM, size, own)
            assert str(caught.value) == sentence
            assert tier.stream()["from"] == 0 and not tier.stream()["own"]
            assert model.decode(tokens_of(model, 16, 3)).any()  # and goes on without one
            model.clear()
        assert tier.counters()["prompt"]["streamed"] == 0
    info = gguf_info.read_info(path)
    bare = core.Tier("CPU", [str(path)], gguf_info.expert_groups(info))
    with pytest.raises(core.Error, match=r"^the slots were not allocated$"):
        bare.set_stream(FROM, unit, False)
    bare.close()
