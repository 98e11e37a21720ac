"""The memory plan: what goes where, in bytes, before anything large is allocated.

Estimates err on the large side; the number of slots is fitted again to what is really free once the
trunk, the KV cache and the compute buffers exist.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Protocol

from ..errors import UserError
from ..numbers import grouped
from .events import PlanLine
from .gguf_info import GgufInfo
from .options import EngineOptions
from .telemetry import Ram

if TYPE_CHECKING:
    from . import _core

GIB = 1 << 30
MIB = 1 << 20
DEFAULT_CONTEXT = 8192
SMALLEST_CONTEXT = 512  # what the plan shrinks to by itself; a person may ask for less
CONTEXT_STEP = 256  # llama.cpp rounds contexts up to this
GPU_RESERVE_GIB = 0.75  # kernels' work memory, CUDA graphs, and other programs' needs
CPU_RESERVE = (GIB, 0.10)  # at least; share of available RAM
MIRROR_RESERVE = (4 * GIB, 0.20)
GPU_BASE = 96 * MIB  # what the first kernels take on a card beside the compute buffers
BATCHES = (4096, 2048, 1024, 512)  # tokens; the largest whose compute buffers take a small share of the room
BATCH_SHARE = 0.2
STREAM_FROM = (32, 64)  # tokens, on a GPU and on the CPU: measured, below it fewer experts are picked than would stream
MAX_THREADS = 16
GPU_THREADS = 4


class Sizes(Protocol):
    """What the tier says about slots; _core.Tier is one."""

    @property
    def n_experts(self) -> int: ...
    def min_slots(self) -> int: ...
    def arena_bytes(self, slots: int) -> int: ...


class StreamSizes(Protocol):
    """What the tier says about streamed batches; _core.Tier is one."""

    @property
    def stream_unit(self) -> int: ...
    @property
    def stream_layer(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Machine:
    """What is there. VRAM in bytes, 0 on the CPU."""

    device: str  # name and description
    on_gpu: bool
    vram_free: int
    vram_total: int
    ram: Ram
    cores: int  # physical cores this process may use


@dataclass(frozen=True, slots=True)
class Plan:
    """Numbers to open a model with. Bytes; `slots` counts experts, `context` and `batch` tokens."""

    slots: int
    min_slots: int
    n_experts: int
    slots_asked: int | None  # not None: `slots` is not fitted again to free memory
    context: int
    batch: int
    threads: int
    arena: int
    kv: int
    compute: int
    reserve: int
    usable: int  # what trunk, KV cache, compute buffers and slots may take together
    vram_free: int  # before anything was allocated; 0 on the CPU
    ring: int  # bytes of its own for the ring of streamed prompts; 0: it borrows slots
    stream_from: int  # tokens of a batch from which it streams; 0: never
    mirror_limit: int  # most bytes of the mirror while not every expert has a slot
    lines: tuple[PlanLine, ...]
    notices: tuple[str, ...] = ()

    @property
    def mirror(self) -> int:
        """Most bytes to fill the mirror with."""
        return self.mirror_limit if self.slots < self.n_experts else 0


def make_plan(info: GgufInfo, sizes: Sizes, machine: Machine, options: EngineOptions) -> Plan:
    """Raises UserError with what is needed, what is there and which knob to turn when the model cannot fit."""
    if options.batch is not None and options.batch < 1:
        raise UserError(f"--batch {options.batch} is no number of tokens: use 1 or more.")
    if options.stream_from is not None and options.stream_from < 0:
        raise UserError(f"--stream-from {options.stream_from} is below 0: use 0 (never) or a number of tokens.")
    if options.ring_gib is not None and options.ring_gib < 0:
        raise UserError(f"--ring-gib {options.ring_gib:g} is below 0: use 0 (lent slots) or more.")
    notices: list[str] = []
    room = _Room(machine, options, notices)
    floor = sizes.min_slots() if sizes.n_experts else 0
    slots = _wanted_slots(sizes, floor, machine, options, notices)
    context = _wanted_context(info, options, notices)
    batch = min(options.batch or _wanted_batch(info, context, machine, room, sizes), context)
    stream_from = STREAM_FROM[not machine.on_gpu] if options.stream_from is None else options.stream_from
    ring = int((options.ring_gib or 0) * GIB) if sizes.n_experts and stream_from else 0
    if options.ring_gib and not ring:
        notices.append("--ring-gib is not used: no prompt streams here.")

    def computing(tokens: int) -> int:
        scores = score_bytes(info, tokens, batch) if options.flash_attention is False else 0
        return compute_bytes(info, tokens, batch, machine.on_gpu) + scores

    def fixed(tokens: int) -> int:
        return info.trunk_bytes + kv_bytes(info, tokens) + computing(tokens) + ring

    least = slots if options.slots is not None else floor
    arena = sizes.arena_bytes(least) if sizes.n_experts else 0
    asked = context
    while options.context is None and context > SMALLEST_CONTEXT and fixed(context) + arena > room.usable:
        context = max(SMALLEST_CONTEXT, context // 2)
    if context < asked:
        notices.append(f"The context is {grouped(context)} tokens instead of {grouped(asked)}: more does not fit.")
    if fixed(context) + arena > room.usable:
        raise UserError(_does_not_fit(info, fixed(context) + arena, room, least, floor, context, options))
    if options.slots is None and sizes.n_experts:
        slots = fitting_slots(sizes, room.usable - fixed(context), slots)
    arena = sizes.arena_bytes(slots) if sizes.n_experts else 0
    mirror = _mirror_limit(sizes, machine, options, notices)
    threads, why_threads = _threads(machine, options)
    kv, compute = kv_bytes(info, context), computing(context)
    where = "VRAM" if machine.on_gpu else "RAM"
    ram = machine.ram
    lines = (
        PlanLine("device", None, machine.device),
        PlanLine(f"{where} to use", room.usable, room.note),
        PlanLine("trunk", info.trunk_bytes, "weights other than experts"),
        PlanLine("KV cache", kv, f"estimate for {grouped(context)} tokens"),
        PlanLine("compute buffers", compute, f"estimate for batches of {grouped(batch)}"),
        PlanLine("slots", arena, _slots_note(slots, sizes.n_experts, floor, options.slots)),
        _mirror_line(mirror, slots, sizes.n_experts, machine.on_gpu),
        PlanLine("RAM available", ram.available, f"limit: {ram.limit_from}"),
        PlanLine("threads", None, f"{threads}: {why_threads}"),
    )
    return Plan(
        slots=slots,
        min_slots=floor,
        n_experts=sizes.n_experts,
        slots_asked=options.slots,
        context=context,
        batch=batch,
        threads=threads,
        arena=arena,
        kv=kv,
        compute=compute,
        reserve=room.reserve,
        usable=room.usable,
        vram_free=machine.vram_free,
        mirror_limit=mirror,
        ring=ring,
        stream_from=stream_from,
        lines=lines,
        notices=tuple(notices),
    )


def ring_size(sizes: StreamSizes, arena: int, own: int) -> int:
    """Bytes of the ring: its own, or of slots that are lent. Two layers keep both streams busy with few, large copies;
    where they would take too much of the arena, it is slices of a layer. 0: not even these."""
    if own:
        return own if own >= sizes.stream_unit else 0
    choices = (
        (3 * sizes.stream_layer, 8),
        (2 * sizes.stream_layer, 4),
        (3 * sizes.stream_unit, 2),
        (2 * sizes.stream_unit, 1),
    )
    return next((size for size, share in choices if size * share <= arena), 0)


def start_stream(tier: _core.Tier, stream_from: int, own: int = 0) -> int:
    """Gives streamed batches their ring, as ring_size says; its bytes, 0 when there is none and nothing streams."""
    size = ring_size(tier, tier.arena()["bytes"], own) if stream_from else 0
    tier.set_stream(stream_from if size else 0, size, bool(own and size))
    return size


def fitting_slots(sizes: Sizes, room: int, most: int) -> int:
    """The largest number of slots, at most `most`, whose arena fits `room` bytes; 0 when none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if sizes.arena_bytes(middle) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def refit(plan: Plan, sizes: Sizes, free: int) -> Plan:
    """The plan with the slots that fit `free` bytes of VRAM, now that all else is allocated.

    Raises UserError when not even the fewest fit, or not those that were asked for.
    """
    if not plan.n_experts:
        return plan
    taken = plan.vram_free - free
    left = max(0, min(free - plan.reserve, plan.usable - taken) - GPU_BASE - plan.ring)
    forced = plan.slots_asked is not None
    most = plan.slots if forced else plan.n_experts
    slots = fitting_slots(sizes, left, most)
    wanted = plan.slots if forced else plan.min_slots
    if slots < wanted:
        raise UserError(
            f"{wanted} slots need {gib(sizes.arena_bytes(wanted))} of VRAM, but only {gib(left)} are left after the "
            f"trunk, the KV cache, the compute buffers and the reserve: use a shorter --ctx, a smaller --batch or a "
            f"smaller --reserve-gib{', or fewer --slots' if wanted > plan.min_slots else ''}."
        )
    arena = sizes.arena_bytes(slots)
    line = PlanLine("slots", arena, _slots_note(slots, plan.n_experts, plan.min_slots, plan.slots_asked))
    mirror = _mirror_line(plan.mirror_limit, slots, plan.n_experts, on_gpu=True)
    new = {line.label: line, mirror.label: mirror}
    notices = plan.notices
    if slots < plan.slots:
        notices += (f"{slots} slots instead of {plan.slots}: less VRAM was free than planned.",)
    return replace(
        plan,
        slots=slots,
        arena=arena,
        lines=tuple(new.get(old.label, old) for old in plan.lines),
        notices=notices,
    )


def kv_bytes(info: GgufInfo, context: int) -> int:
    """KV cache at f16 and recurrent states for one sequence; at most, for windows and shared heads save some."""
    context += -context % CONTEXT_STEP
    embd, heads = _number(info, "embedding_length"), _number(info, "attention.head_count")
    head = embd // heads if heads else 0
    key, value = _number(info, "attention.key_length", head), _number(info, "attention.value_length", head)
    every = _number(info, "full_attention_interval")
    total = 0
    for layer in range(info.n_layers):
        kv_heads = _number(info, "attention.head_count_kv", heads, layer)
        if every and (layer + 1) % every:
            kv_heads = 0
        total += context * kv_heads * (key + value) * 2
    inner, state = _number(info, "ssm.inner_size"), _number(info, "ssm.state_size")
    groups, conv = _number(info, "ssm.group_count"), _number(info, "ssm.conv_kernel")
    recurrent = max(0, conv - 1) * (inner + 2 * groups * state) + state * inner
    return total + info.n_layers * recurrent * 4


def compute_bytes(info: GgufInfo, context: int, batch: int, on_gpu: bool) -> int:
    """llama.cpp's compute buffers for one batch with flash attention, one row of logits, and the experts' rows."""
    embd, ff = _number(info, "embedding_length"), _widest(info, "feed_forward_length")
    expert_ff = _widest(info, "expert_feed_forward_length") or ff
    rows = batch * 4 * (4 * embd + 3 * ff)
    experts = batch * 4 * info.n_experts_used * (2 * embd + 3 * expert_ff)
    mask = (context + -context % CONTEXT_STEP) * batch * 6
    return rows + experts + mask + (info.n_vocab or 0) * 4 + (GPU_BASE if on_gpu else 0)


def score_bytes(info: GgufInfo, context: int, batch: int) -> int:
    """Attention scores of one batch, which are kept whole without flash attention."""
    return _number(info, "attention.head_count") * context * batch * 4


def gib(n: int) -> str:
    """Bytes as people read them."""
    return f"{n / GIB:.2f} GiB" if n >= GIB // 10 else f"{n / MIB:.1f} MiB"


class _Room:
    """Bytes that trunk, KV cache, compute buffers and slots may take together on the device."""

    def __init__(self, machine: Machine, options: EngineOptions, notices: list[str]) -> None:
        self.where = "VRAM" if machine.on_gpu else "RAM"
        self.knob = "--vram-gib" if machine.on_gpu else "--ram-gib"
        asked = options.vram_gib if machine.on_gpu else options.ram_gib
        if asked is not None and asked <= 0:
            raise UserError(f"{self.knob} {asked:g} leaves nothing to use: give a number above 0.")
        if options.reserve_gib is not None and options.reserve_gib < 0:
            raise UserError(f"--reserve-gib {options.reserve_gib:g} is below 0: use 0 or more.")
        other, given = ("--ram-gib", options.ram_gib) if machine.on_gpu else ("--vram-gib", options.vram_gib)
        unused = ""
        if given is not None:
            place = f"on {'a GPU' if machine.on_gpu else 'the CPU'}"
            unused = f", {other} not used {place}"
            notices.append(f"{other} is not used: {place} the limit is {self.knob}.")
        if machine.on_gpu:
            free = machine.vram_free
            default = int(GPU_RESERVE_GIB * GIB)
        else:
            free = machine.ram.available if machine.ram.available is not None else 0
            default = max(CPU_RESERVE[0], int(free * CPU_RESERVE[1]))
        self.reserve = default if options.reserve_gib is None else int(options.reserve_gib * GIB)
        if not machine.on_gpu and machine.ram.available is None:
            if asked is None:
                raise UserError("This system does not say how much RAM is available: say it with --ram-gib.")
            self.usable, self.note = int(asked * GIB), self.knob + unused
            return
        left = max(0, free - self.reserve)
        self.usable = left if asked is None else min(left, int(asked * GIB))
        self.note = f"{gib(free)} free, {gib(self.reserve)} kept in reserve"
        if asked is not None:
            self.note += f", {self.knob} {asked:g}"
        self.note += unused


def _wanted_slots(sizes: Sizes, floor: int, machine: Machine, options: EngineOptions, notices: list[str]) -> int:
    """Slots to have if there is room. Without a GPU a third of the experts: a small model shows hits and misses."""
    if options.slots is None:
        third = max(floor, ceil(sizes.n_experts / 3))
        return sizes.n_experts if machine.on_gpu or options.ram_gib is not None else third
    if sizes.n_experts and options.slots < floor:
        raise UserError(
            f"--slots {options.slots} is too few: this model needs {floor} or more, so that every layer can run."
        )
    if not sizes.n_experts:
        notices.append("--slots is not used: a dense model has no experts.")
    elif options.slots > sizes.n_experts:
        notices.append(f"--slots {options.slots} is more than the {sizes.n_experts} experts: each gets one slot.")
    return min(options.slots, sizes.n_experts)


def _wanted_batch(info: GgufInfo, context: int, machine: Machine, room: _Room, sizes: Sizes) -> int:
    """On a GPU large batches: what streams for one streams for all its tokens."""
    if machine.on_gpu and sizes.n_experts:
        for batch in BATCHES:
            # whether flash attention works is known later only: there must be room without it, too
            if (
                compute_bytes(info, context, batch, True) + score_bytes(info, context, batch)
                <= BATCH_SHARE * room.usable
            ):
                return batch
    return BATCHES[-1]


def _wanted_context(info: GgufInfo, options: EngineOptions, notices: list[str]) -> int:
    trained = info.context_trained
    if options.context is None:
        return min(trained or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    if options.context < 1:
        raise UserError(f"--ctx {options.context} is no number of tokens: use 1 or more.")
    if trained is not None and options.context > trained:
        notices.append(
            f"--ctx {options.context} is more than the {grouped(trained)} tokens this model was trained for."
        )
    return options.context


def _mirror_line(limit: int, slots: int, n_experts: int, on_gpu: bool) -> PlanLine:
    if not on_gpu:
        return PlanLine("mirror", 0, "not used on the CPU")
    if slots >= n_experts:
        return PlanLine("mirror", 0, "every expert has a slot" if n_experts else "a dense model has no experts")
    return PlanLine("mirror", limit, "at most, in page-locked RAM")


def _mirror_limit(sizes: Sizes, machine: Machine, options: EngineOptions, notices: list[str]) -> int:
    if not machine.on_gpu:
        if options.mirror_gib:
            notices.append("--mirror-gib is not used: on the CPU the slots are in RAM anyway.")
        return 0
    if options.mirror_gib is not None and options.mirror_gib < 0:
        raise UserError(f"--mirror-gib {options.mirror_gib:g} is below 0: use 0 or more.")
    available = machine.ram.available or 0
    whole = sizes.arena_bytes(sizes.n_experts) if sizes.n_experts else 0  # experts lie there as in slots
    spare = max(0, available - max(MIRROR_RESERVE[0], int(available * MIRROR_RESERVE[1])))
    if options.mirror_gib is None:
        return min(whole, spare)
    asked = min(whole, int(options.mirror_gib * GIB))
    if machine.ram.available is not None and asked > available:
        raise UserError(
            f"A mirror of {gib(asked)} does not fit the {gib(available)} of RAM that are available "
            f"(limit: {machine.ram.limit_from}): use a smaller --mirror-gib."
        )
    return asked


def _threads(machine: Machine, options: EngineOptions) -> tuple[int, str]:
    if options.threads is not None:
        if options.threads < 1:
            raise UserError(f"--threads {options.threads} is too few: use 1 or more.")
        return options.threads, "as asked"
    if machine.on_gpu:
        return min(GPU_THREADS, machine.cores), "the card computes, the CPU only looks up embeddings"
    if machine.cores <= 2:
        return machine.cores, f"all of {machine.cores} physical cores"
    if machine.cores <= MAX_THREADS:
        return machine.cores - 1, f"one of {machine.cores} physical cores left for the stager and the screen"
    return MAX_THREADS, f"of {machine.cores} physical cores; more bring little, for memory is the limit"


def _slots_note(slots: int, n_experts: int, floor: int, asked: int | None) -> str:
    if not n_experts:
        return "a dense model has no experts" + (", --slots not used" if asked is not None else "")
    note = f"{grouped(slots)} of {grouped(n_experts)} experts, {grouped(floor)} at least"
    if asked is None:
        return note
    return f"{note}, --slots" + (f" {asked} is more than there are" if asked > n_experts else "")


def _does_not_fit(
    info: GgufInfo, needed: int, room: _Room, slots: int, floor: int, context: int, options: EngineOptions
) -> str:
    what = f"a context of {grouped(context)} tokens" + (f" and {grouped(slots)} slots" if slots else "")
    knobs = []
    if options.slots is not None and slots > floor:
        knobs.append(f"fewer --slots (at least {floor})")
    if context > SMALLEST_CONTEXT:
        knobs.append("a shorter --ctx")
    if options.batch is None or options.batch > 64:
        knobs.append("a smaller --batch")
    if (options.vram_gib if room.where == "VRAM" else options.ram_gib) is not None:
        knobs.append(f"a larger {room.knob}")
    if room.reserve:
        knobs.append("a smaller --reserve-gib")
    advice = f"try {', or '.join(knobs)}" if knobs else "it needs a machine with more memory"
    return (
        f"{info.name} needs {gib(needed)} of {room.where} for its trunk, {what}, but {gib(room.usable)} may be used "
        f"({room.note}): {advice}."
    )


def _number(info: GgufInfo, key: str, default: int = 0, layer: int = 0) -> int:
    value = info.per_layer(key, layer)
    return int(value) if isinstance(value, (int, float)) else default


def _widest(info: GgufInfo, key: str) -> int:
    return max((_number(info, key, 0, layer) for layer in range(info.n_layers)), default=0)
