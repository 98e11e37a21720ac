"""The memory plan: what fits, what is refused and how it says so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from strata_tui.engine.gguf_info import GgufInfo
from strata_tui.engine.options import EngineOptions
from strata_tui.engine.plan import (
    GIB,
    GPU_BASE,
    MIB,
    STREAM_FROM,
    Machine,
    compute_bytes,
    fitting_slots,
    kv_bytes,
    make_plan,
    refit,
    ring_size,
)
from strata_tui.engine.telemetry import Ram
from strata_tui.errors import UserError
from strata_tui.numbers import grouped


@dataclass(frozen=True)
class Slots:
    """Slots of one size, as the tier counts them."""

    n_experts: int = 6144
    floor: int = 8
    stride: int = 2 * MIB

    def min_slots(self) -> int:
        return self.floor

    def arena_bytes(self, slots: int) -> int:
        return slots * self.stride


INFO = GgufInfo(
    path=Path("/models/moe.gguf"),
    shards=(Path("/models/moe.gguf"),),
    name="Moe",
    architecture="qwen3moe",
    quantization="Q4_0",
    file_bytes=14 * GIB,
    trunk_bytes=1 * GIB,
    expert_bytes=12 * GIB,
    n_layers=48,
    n_experts=128,
    n_experts_used=8,
    context_trained=40960,
    n_vocab=151936,
    alignment=32,
    metadata={
        "qwen3moe.embedding_length": 2048,
        "qwen3moe.attention.head_count": 32,
        "qwen3moe.attention.head_count_kv": 4,
        "qwen3moe.attention.key_length": 128,
        "qwen3moe.attention.value_length": 128,
        "qwen3moe.feed_forward_length": 6144,
        "qwen3moe.expert_feed_forward_length": 768,
    },
    arrays={},
    tensors=(),
)
CARD = Machine("NVIDIA Test (CUDA0)", True, 12 * GIB, 12 * GIB, Ram(32 * GIB, 64 * GIB), 8)
CPU = Machine("CPU", False, 0, 0, Ram(16 * GIB, 32 * GIB), 8)
DENSE = Slots(n_experts=0, floor=0)


def line(plan_lines: object, label: str) -> object:
    return next(item for item in plan_lines if item.label == label)  # type: ignore[attr-defined]


def test_kv_of_full_attention_is_exact() -> None:
    # 48 layers, 4 heads of 128 for K and V, 2 bytes
    assert kv_bytes(INFO, 8192) == 8192 * 48 * 4 * (128 + 128) * 2
    assert kv_bytes(INFO, 8000) == kv_bytes(INFO, 8192)  # llama.cpp rounds up to 256


def test_kv_counts_recurrent_states_and_skips_their_attention() -> None:
    metadata = dict(INFO.metadata) | {
        "qwen3moe.full_attention_interval": 4,
        "qwen3moe.ssm.inner_size": 4096,
        "qwen3moe.ssm.state_size": 128,
        "qwen3moe.ssm.group_count": 16,
        "qwen3moe.ssm.conv_kernel": 4,
    }
    state = 3 * (4096 + 2 * 16 * 128) + 128 * 4096
    expected = kv_bytes(INFO, 4096) // 4 + 48 * state * 4
    assert kv_bytes(replace(INFO, metadata=metadata), 4096) == expected


def test_slots_fill_the_card_and_no_more() -> None:
    plan = make_plan(INFO, Slots(), CARD, EngineOptions())
    fixed = INFO.trunk_bytes + plan.kv + plan.compute + plan.reserve
    assert plan.context == 8192
    assert plan.reserve == int(0.75 * GIB)
    assert fixed + plan.arena <= CARD.vram_free < fixed + plan.arena + Slots().stride
    assert 0 < plan.slots < 6144


def test_every_number_is_in_the_lines() -> None:
    plan = make_plan(INFO, Slots(), CARD, EngineOptions())
    shown = {item.label: item.bytes for item in plan.lines}
    assert shown["trunk"] == INFO.trunk_bytes
    assert shown["KV cache"] == plan.kv
    assert shown["compute buffers"] == plan.compute
    assert shown["slots"] == plan.arena
    assert shown["mirror"] == plan.mirror_limit
    assert shown["RAM available"] == 32 * GIB
    notes = " ".join(item.note for item in plan.lines)
    assert "estimate for 8 192 tokens" in notes
    assert f"{grouped(plan.slots)} of 6 144 experts" in notes
    assert "12.00 GiB free, 0.75 GiB kept in reserve" in notes


def test_a_card_with_room_for_all_takes_all_and_needs_no_mirror() -> None:
    machine = replace(CARD, vram_free=80 * GIB, vram_total=80 * GIB)
    plan = make_plan(INFO, Slots(), machine, EngineOptions())
    assert plan.slots == 6144
    assert plan.mirror == 0


def test_mirror_leaves_ram_to_others() -> None:
    assert make_plan(INFO, Slots(), CARD, EngineOptions()).mirror == 12 * GIB  # all experts
    tight = replace(CARD, ram=Ram(8 * GIB, 16 * GIB))
    assert make_plan(INFO, Slots(), tight, EngineOptions()).mirror == 4 * GIB  # 8 less 4
    none = replace(CARD, ram=Ram(3 * GIB, 16 * GIB))
    assert make_plan(INFO, Slots(), none, EngineOptions()).mirror == 0
    assert make_plan(INFO, Slots(), tight, EngineOptions(mirror_gib=6)).mirror == 6 * GIB
    with pytest.raises(UserError, match=r"--mirror-gib"):
        make_plan(INFO, Slots(), tight, EngineOptions(mirror_gib=10))


def test_cpu_takes_a_third_of_the_experts_and_no_mirror() -> None:
    plan = make_plan(INFO, Slots(n_experts=480), CPU, EngineOptions())
    assert plan.slots == 160
    assert plan.mirror == 0
    assert make_plan(INFO, Slots(n_experts=12), CPU, EngineOptions()).slots == 8  # the floor


def test_cpu_slots_are_limited_by_ram() -> None:
    plan = make_plan(INFO, Slots(), replace(CPU, ram=Ram(5 * GIB, 8 * GIB)), EngineOptions())
    assert 8 <= plan.slots < 2048
    assert INFO.trunk_bytes + plan.kv + plan.compute + plan.reserve + plan.arena <= 5 * GIB


def test_budget_flags() -> None:
    small = make_plan(INFO, Slots(), CARD, EngineOptions(vram_gib=6))
    assert INFO.trunk_bytes + small.kv + small.compute + small.arena <= 6 * GIB
    assert small.slots < make_plan(INFO, Slots(), CARD, EngineOptions()).slots
    roomy = make_plan(INFO, Slots(), CARD, EngineOptions(reserve_gib=0))
    assert roomy.slots > make_plan(INFO, Slots(), CARD, EngineOptions()).slots
    ram = make_plan(INFO, Slots(), CPU, EngineOptions(ram_gib=4))
    assert INFO.trunk_bytes + ram.kv + ram.compute + ram.arena <= 4 * GIB
    assert ram.slots > 480


def test_asked_slots_are_kept_or_refused() -> None:
    assert make_plan(INFO, Slots(), CARD, EngineOptions(slots=100)).slots == 100
    assert make_plan(INFO, Slots(n_experts=50), CARD, EngineOptions(slots=100)).slots == 50
    with pytest.raises(UserError, match=r"--slots 4 is too few.*8 or more"):
        make_plan(INFO, Slots(), CARD, EngineOptions(slots=4))
    with pytest.raises(UserError, match=r"needs .* of VRAM .*may be used .*fewer --slots"):
        make_plan(INFO, Slots(), CARD, EngineOptions(slots=6000))


def test_more_slots_than_experts_are_told() -> None:
    few, asked = Slots(n_experts=50), EngineOptions(slots=100)
    for plan in (make_plan(INFO, few, CPU, asked), make_plan(INFO, few, CARD, asked)):
        assert plan.notices == ("--slots 100 is more than the 50 experts: each gets one slot.",)
        assert line(plan.lines, "slots").note.endswith("--slots 100 is more than there are")  # type: ignore[attr-defined]
    again = refit(plan, few, 4 * GIB)
    assert line(again.lines, "slots") == line(plan.lines, "slots")
    exact = make_plan(INFO, few, CPU, EngineOptions(slots=50))
    assert not exact.notices
    assert line(exact.lines, "slots").note.endswith(", --slots")  # type: ignore[attr-defined]
    dense = make_plan(replace(INFO, n_experts=0, expert_bytes=0), DENSE, CPU, asked)
    assert dense.notices == ("--slots is not used: a dense model has no experts.",)
    assert line(dense.lines, "slots").note.endswith("--slots not used")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("machine", "unused", "used", "where"),
    [(CPU, "vram_gib", "--ram-gib", "the CPU"), (CARD, "ram_gib", "--vram-gib", "a GPU")],
)
def test_the_other_devices_limit_is_told(machine: Machine, unused: str, used: str, where: str) -> None:
    plan = make_plan(INFO, Slots(), machine, EngineOptions(**{unused: 4}))  # type: ignore[arg-type]
    flag = "--" + unused.replace("_", "-")
    assert plan.notices == (f"{flag} is not used: on {where} the limit is {used}.",)
    assert plan.lines[1].note.endswith(f", {flag} not used on {where}")
    assert plan.usable == make_plan(INFO, Slots(), machine, EngineOptions()).usable


def test_context_shrinks_by_itself_and_says_so() -> None:
    plan = make_plan(INFO, Slots(), replace(CARD, vram_free=int(2.45 * GIB)), EngineOptions())
    assert plan.context == 4096
    assert "4 096 tokens instead of 8 192" in plan.notices[0]


def test_asked_context_is_kept() -> None:
    assert make_plan(INFO, Slots(), CARD, EngineOptions(context=3000)).context == 3000
    assert make_plan(replace(INFO, context_trained=2048), Slots(), CARD, EngineOptions()).context == 2048
    plan = make_plan(replace(INFO, context_trained=2048), Slots(), CARD, EngineOptions(context=4096))
    assert plan.context == 4096
    assert "more than the 2 048 tokens" in plan.notices[0]


def test_what_cannot_fit_is_refused_with_numbers_and_a_knob() -> None:
    with pytest.raises(UserError) as caught:
        make_plan(INFO, Slots(), replace(CARD, vram_free=1 * GIB), EngineOptions(context=4096))
    message = str(caught.value)
    assert "Moe needs 1." in message
    assert "0.25 GiB may be used" in message
    assert "a shorter --ctx" in message
    assert "--reserve-gib" in message
    assert message.count(". ") == 0  # one sentence


@pytest.mark.parametrize(
    ("options", "knob"),
    [
        (EngineOptions(context=0), "--ctx 0"),
        (EngineOptions(batch=0), "--batch 0"),
        (EngineOptions(threads=0), "--threads 0"),
        (EngineOptions(vram_gib=0), "--vram-gib 0"),
        (EngineOptions(reserve_gib=-1), "--reserve-gib -1"),
        (EngineOptions(mirror_gib=-1), "--mirror-gib -1"),
    ],
)
def test_impossible_numbers_are_refused_by_name(options: EngineOptions, knob: str) -> None:
    with pytest.raises(UserError, match=knob):
        make_plan(INFO, Slots(), CARD, options)


def test_unknown_ram_wants_a_flag() -> None:
    unknown = replace(CPU, ram=Ram(None, None))
    with pytest.raises(UserError, match="--ram-gib"):
        make_plan(INFO, Slots(), unknown, EngineOptions())
    assert make_plan(INFO, Slots(), unknown, EngineOptions(ram_gib=8)).slots > 8


def test_dense_models_have_no_slots_but_must_fit() -> None:
    info = replace(INFO, n_experts=0, n_experts_used=0, expert_bytes=0)
    plan = make_plan(info, DENSE, CPU, EngineOptions())
    assert (plan.slots, plan.arena, plan.min_slots) == (0, 0, 0)
    with pytest.raises(UserError, match="RAM"):
        make_plan(info, DENSE, replace(CPU, ram=Ram(GIB, GIB)), EngineOptions())


def test_threads() -> None:
    def threads(machine: Machine, **options: int) -> int:
        return make_plan(INFO, Slots(), machine, EngineOptions(**options)).threads  # type: ignore[arg-type]

    assert threads(replace(CPU, cores=1)) == 1
    assert threads(replace(CPU, cores=2)) == 2
    assert threads(replace(CPU, cores=8)) == 7
    assert threads(replace(CPU, cores=64)) == 16
    assert threads(CARD) == 4
    assert threads(CARD, threads=9) == 9


def test_fitting_slots() -> None:
    assert fitting_slots(Slots(), 10 * Slots().stride, 100) == 10
    assert fitting_slots(Slots(), 10 * Slots().stride - 1, 100) == 9
    assert fitting_slots(Slots(), 10 * Slots().stride, 5) == 5
    assert fitting_slots(Slots(), -1, 5) == 0


def test_refit_follows_what_is_really_free() -> None:
    plan = make_plan(INFO, Slots(), CARD, EngineOptions())
    fixed = INFO.trunk_bytes + plan.kv + plan.compute
    fewer = refit(plan, Slots(), CARD.vram_free - fixed - GIB)
    assert fewer.slots < plan.slots
    assert f"{fewer.slots} slots instead of {plan.slots}" in fewer.notices[-1]
    assert line(fewer.lines, "slots").bytes == fewer.arena  # type: ignore[attr-defined]
    more = refit(plan, Slots(), CARD.vram_free - fixed + GIB)
    assert more.slots > plan.slots
    assert not more.notices
    with pytest.raises(UserError, match=r"8 slots need 16\.0 MiB of VRAM, but only 0\.0 MiB are left"):
        refit(plan, Slots(), plan.reserve)


def test_refit_keeps_what_was_asked_or_refuses() -> None:
    plan = make_plan(INFO, Slots(), CARD, EngineOptions(slots=100))
    free = plan.reserve + GPU_BASE + 100 * Slots().stride
    assert refit(plan, Slots(), free).slots == 100
    with pytest.raises(UserError, match="fewer --slots"):
        refit(plan, Slots(), free - 1)


def test_refit_holds_the_budget() -> None:
    plan = make_plan(INFO, Slots(), CARD, EngineOptions(vram_gib=6))
    fixed = INFO.trunk_bytes + kv_bytes(INFO, 8192) + compute_bytes(INFO, 8192, 512, on_gpu=False)
    again = refit(plan, Slots(), CARD.vram_free - fixed)
    assert fixed + again.arena + GPU_BASE <= 6 * GIB


@dataclass(frozen=True)
class Streams:
    """A layer of three slices, as the tier counts them."""

    stream_unit: int = 100
    stream_layer: int = 300


@pytest.mark.parametrize(
    ("arena", "size"),
    [(7200, 900), (7199, 600), (2400, 600), (2399, 300), (600, 300), (599, 200), (200, 200), (199, 0)],
)
def test_a_ring_of_lent_slots_is_as_large_as_the_arena_can_bear(arena: int, size: int) -> None:
    assert ring_size(Streams(), arena, 0) == size


@pytest.mark.parametrize(("own", "size"), [(99, 0), (100, 100), (5000, 5000)])
def test_a_ring_of_its_own_is_what_was_asked_for_or_none(own: int, size: int) -> None:
    assert ring_size(Streams(), 7200, own) == size


@pytest.mark.parametrize(("free", "batch"), [(128, 4096), (24, 2048), (12, 1024), (6, 512)])
def test_batches_on_a_card_are_as_large_as_a_share_of_it_allows(free: int, batch: int) -> None:
    card = replace(CARD, vram_free=free * GIB, vram_total=free * GIB)
    assert make_plan(INFO, Slots(), card, EngineOptions()).batch == batch
    assert make_plan(INFO, Slots(), card, EngineOptions(batch=256)).batch == 256
    assert make_plan(INFO, Slots(), CPU, EngineOptions()).batch == 512


def test_a_ring_of_its_own_takes_the_room_of_slots_where_prompts_stream() -> None:
    plain = make_plan(INFO, Slots(), CARD, EngineOptions())
    own = make_plan(INFO, Slots(), CARD, EngineOptions(ring_gib=1))
    assert (plain.stream_from, own.ring) == (STREAM_FROM[0], GIB)
    assert plain.slots - own.slots == 512  # of 2 MiB
    never = make_plan(INFO, Slots(), CARD, EngineOptions(ring_gib=1, stream_from=0))
    assert (never.ring, never.slots) == (0, plain.slots)
    assert "--ring-gib is not used" in " ".join(never.notices)
