"""Builds of the extension that differ: one that poisons what nobody may read, and ones without one of the guards
that keep copies and reads apart, each on real models with llama.cpp computing.

The CPU device copies on a thread of its own, here with random delays. What a guard keeps from happening then does
happen without it, and changes logits. The guards' checks one by one, on a simulated device: tests/engine_ext.

Two waits have nothing to wait for on the CPU device, where computing is over when it returns: the one of copies for
reads that are queued (copies_wait), in load.c and policy.c, and with it the half of change_stream that stands before
copies to come. Taking them out changes nothing here. They are shown to be needed on the simulated device, and used in
the tests on a GPU (test_gpu.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from model_fixtures import TinyModel

from strata_tui.engine import gguf_info
from strata_tui.engine.llama import LowLevel

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import variants  # noqa: E402
from variants import Mutation, Outcome, Run  # noqa: E402

sys.path.remove(str(HERE))

PROMPT, DECODED = 40, 30
POISON = ("ST_POISON",)
Expected = Callable[[Run], str]


@dataclass(frozen=True)
class Guard:
    """Without what the mutation takes out, the logits of `run` (of a model yet to be named) are others."""

    what: str
    mutation: Mutation
    run: Run


DECODE = Run("", 32, PROMPT, DECODED)  # half of the slots, a pool of two buffers
PREFILL = replace(DECODE, workload="prefill", slots=64, mirror=1 << 24)  # no miss, whose load would be waited for
CANCEL = replace(DECODE, workload="cancel")
SWAPS = replace(DECODE, workload="swaps", mirror=1 << 24, decoded=6, repeat=12, delay=600)
RUNS = (DECODE, PREFILL, CANCEL, SWAPS)

GUARDS = [
    Guard(
        "reap asks whether the copy has completed",
        Mutation("stage", (("if (done) {", "if (done || 1) {"),)),
        DECODE,
    ),
    Guard(
        "wait_oldest waits",
        Mutation("stage", (("p->transport->iface->wait(p->transport, oldest->event) < 0", "0"),)),
        DECODE,
    ),
    Guard(
        "an event stands behind the last copy before it",
        Mutation("transport_thread", (("->number = t->n_queued;", "->number = t->n_queued - (t->n_queued > 0);"),)),
        DECODE,
    ),
    Guard(
        "reads wait for the copies to their slots",
        Mutation("load", (("(compute && io->compute_waits(t->transport, compute, t->group_event) < 0)", "0"),)),
        DECODE,
    ),
    Guard(
        "slots are published after their copies",
        Mutation(
            "load",
            (
                (
                    "    while (result == 0 && (next < n || open > 0)) {\n",
                    "    for (int i = 0; i < n; i++) {\n"
                    "        st_residency_publish(&c->residency, loads[i].slot);\n"
                    "    }\n"
                    "    while (result == 0 && (next < n || open > 0)) {\n",
                ),
                (
                    "        if (result == 0) {\n"
                    "            st_residency_publish(&c->residency, loads[i].slot);\n"
                    "        } else {\n"
                    "            st_residency_abandon(&c->residency, loads[i].slot);\n"
                    "        }\n",
                    "",
                ),
            ),
        ),
        CANCEL,
    ),
    Guard(
        "the first stream after a pre-fill waits for its copies",
        Mutation("graph", (("(t->loaded && io->compute_waits(t->transport, next, t->group_event) < 0)", "0"),)),
        PREFILL,
    ),
    Guard(
        "reads wait for the copies of a swap that is needed at once",
        Mutation("policy", (("compute ? io->compute_waits(t->transport, compute, t->swap_event) :", "compute ? 0 :"),)),
        SWAPS,
    ),
]


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> variants.Builder:
    reason = variants.missing()
    if reason is not None:
        pytest.skip(reason)
    return variants.Builder(tmp_path_factory.mktemp("variants"))


@pytest.fixture(scope="module")
def expected() -> Expected:
    """The hash of plain llama.cpp's logits for a run."""

    @cache
    def plain(model: str, prompt: int, decoded: int, repeat: int) -> str:
        with LowLevel(Path(model), tier=False, context=256) as opened:
            return variants.hash_of(np.concatenate(list(variants.read(opened, prompt, decoded, repeat))))

    return lambda run: plain(run.model, run.prompt, run.decoded, run.repeat)


def right(run: Run, outcome: Outcome, expected: Expected) -> bool:
    return not outcome.verify and set(outcome.hashes) == {expected(run)}


def named(run: Run, path: Path) -> Run:
    return replace(run, model=str(path))


# Guards


def test_with_all_guards_the_logits_are_those_of_plain_llama_cpp(
    builder: variants.Builder, tiny_model: TinyModel, expected: Expected
) -> None:
    runs = [named(run, tiny_model("qwen3moe")) for run in RUNS]
    for run, outcome in zip(runs, variants.outcomes(builder.build(), runs), strict=True):
        assert right(run, outcome, expected), (run, outcome)
        assert (outcome.evictions > 0) == (run.workload != "prefill")
        assert (outcome.swaps > 0) == (run.workload == "swaps")


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.what)
def test_without_a_guard_they_are_others(
    guard: Guard, builder: variants.Builder, tiny_model: TinyModel, expected: Expected
) -> None:
    run = named(guard.run, tiny_model("qwen3moe"))
    [outcome] = variants.outcomes(builder.build(guard.mutation), [run])
    assert not right(run, outcome, expected)


# Poison: recycled buffers and evicted slots are filled with NaN


@pytest.mark.parametrize("name", ["qwen3moe", "gpt_oss", "qwen3next_fused"])
def test_poison_is_never_read(name: str, builder: variants.Builder, tiny_model: TinyModel, expected: Expected) -> None:
    path = tiny_model(name)
    half = sum(experts for _, experts, _, _ in gguf_info.expert_groups(gguf_info.read_info(path))) // 2
    decode = Run(str(path), half, 33, 6, delay=60)
    swaps = replace(decode, workload="swaps", mirror=1 << 19, repeat=4)  # a part of the experts: the pool is used too
    runs = [replace(decode, slots=1), decode, replace(decode, workload="cancel"), swaps]
    for run, outcome in zip(runs, variants.outcomes(builder.build(definitions=POISON), runs), strict=True):
        assert right(run, outcome, expected), (run, outcome)
        assert outcome.evictions > 0 and not outcome.nan


@pytest.mark.parametrize(
    "mutation",
    [
        Mutation("fill", (("result = st_experts_read(", "result = (got.cached = -1) ? 0 : st_experts_read("),)),
        Mutation("stage", (("if (p->transport->iface->copy(", "if (0 && p->transport->iface->copy("),)),
    ],
    ids=["in buffers that are not filled", "in slots that nothing is copied to"],
)
def test_poison_is_there(mutation: Mutation, builder: variants.Builder, tiny_model: TinyModel) -> None:
    [outcome] = variants.outcomes(builder.build(mutation, POISON), [named(DECODE, tiny_model("qwen3moe"))])
    assert outcome.nan
