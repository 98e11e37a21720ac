"""Builds of the extension that differ: one that poisons what nobody may read, and ones without one of the guards
that keep copies and reads apart, each on real models with llama.cpp computing.

The CPU device copies on a thread of its own, here with random delays. What a guard keeps from happening then does
happen without it, and changes logits. The guards' checks one by one, on a simulated device: tests/engine_ext.

That copies wait for what still reads their bytes shows only where computing goes on after its call has returned. It
does in long batches with a compute delay: then the CPU device computes on a thread of its own, too. Everywhere else
the host itself has waited for the compute stream before it queues copies (for the router's ids, or at the end of a
graph), so that the waits of load.c, policy.c, lend.c and change_stream have nothing left to wait for here. Taking
those out changes nothing; they are shown to be needed on the simulated device, and used in the tests on a GPU
(test_gpu.py).
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
LENT = replace(DECODE, prompt=700, context=1024, stream_from=8, units=2, compute_delay=100, delay=100)
OWN = replace(LENT, units=1.3, own=True)
LAYERS = replace(LENT, units=8, own=True)  # the ring holds two layers, so whole layers stream
STREAMS = {"lent": LENT, "own": OWN}
RUNS = (DECODE, PREFILL, CANCEL, SWAPS, LENT, OWN, LAYERS)

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
        Mutation(
            "transport_thread",
            (
                (
                    "{ lane, t->lanes[lane].n_queued }",
                    "{ lane, t->lanes[lane].n_queued - (t->lanes[lane].n_queued > 0) }",
                ),
            ),
        ),
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
                    "    struct blobs blobs = {",
                    "    for (int i = 0; i < n; i++) {\n"
                    "        st_residency_publish(&c->residency, loads[i].slot);\n"
                    "    }\n"
                    "    struct blobs blobs = {",
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
    *(
        Guard(
            f"copies to the ring wait for the reader of what lay there, {kind}",
            Mutation(
                "ring", (("last > r->n_ended && io->copies_after(r->transport, unit(r, last - 1)->read) < 0", "0"),)
            ),
            replace(run, compute_delay=1000, delay=10),
        )
        for kind, run in STREAMS.items()
    ),
    *(
        Guard(
            f"the reader of a unit waits for its copies, {kind}",
            Mutation(
                "ring",
                (("r->transport->iface->compute_waits(r->transport, compute, u->arrived) < 0", "compute == NULL"),),
            ),
            replace(run, compute_delay=10, delay=1000, pool=64),  # so large a pool waits for no copy itself
        )
        for kind, run in STREAMS.items()
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
        with LowLevel(Path(model), tier=False, context=1024) as opened:
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
        assert (outcome.streamed > 0) == (run.stream_from > 0)
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
    lent = replace(decode, prompt=200, stream_from=8, units=1.3, mirror=1 << 18)
    layers = replace(lent, units=8, own=True, compute_delay=60)
    runs = [replace(decode, slots=1), decode, replace(decode, workload="cancel"), swaps, lent, layers]
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
