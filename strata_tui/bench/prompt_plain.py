"""`strata-tui bench prompt --plain`: prompts through the tier beside plain llama.cpp, interleaved. CUDA only.

Arms: llama.cpp with everything on the device, at two batch sizes; llama.cpp with some layers' experts on the CPU, with
and without mmap; the tier with a mirror, its ring borrowing slots or with memory of its own; and the tier without a
mirror, from the warm page cache. Each arm's likeliest next token is compared with the first arm's. Bytes over the link
are counted and set against what the link carries (64 MiB copies from pinned memory).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import UserError
from .report import Spread, bootstrap_ratio, machine, table

BATCHES = (512, 2048)
RING_LAYERS = 3  # of a ring with memory of its own


@dataclass(slots=True)
class Arm:
    name: str
    open: Callable[[], Any]
    model: Any = None
    rates: list[float] = field(default_factory=list)  # tokens per second
    link: list[float] = field(default_factory=list)  # GB/s
    same: bool = True  # the likeliest next token is the first arm's


def run(args: argparse.Namespace, info: Any, experts: int, device: str) -> int:
    """Exit code 1 when an arm chooses another token than the first. Raises UserError."""
    from ..engine import native
    from ..engine.llama import LowLevel, Placement
    from ..engine.plan import STREAM_FROM, start_stream

    if device == "CPU":
        raise UserError("bench prompt --plain compares prompts on a GPU, and llama.cpp offers none here.")
    core, size = native.load(), max(BATCHES)
    slots = round(args.slots_fraction * experts)
    common = {"device": device, "context": args.prompt + 64, "threads": args.threads}

    def plain(batch: int, layers: int = 0, mmap: bool = False) -> Any:
        place = Placement(device, layers, mmap)
        return LowLevel(args.model, tier=False, placement=place, batch=batch, **common)

    def tier(mirror: int, own: bool) -> Any:
        model = LowLevel(args.model, slots=slots, batch=size, mirror=mirror, pool_buffers=args.pool_buffers, **common)
        assert model.tier is not None
        usage = np.random.default_rng(5).random(experts).astype(np.float32)  # residents at random places
        model.tier.prefill(usage.tobytes())
        start_stream(model.tier, STREAM_FROM[0], RING_LAYERS * model.tier.stream_layer if own else 0)
        return model

    mirror = int(args.mirror_gib * 2**30) or 2 * info.expert_bytes
    arms = [Arm(f"llama.cpp, all on the device, batch {b}", lambda b=b: plain(b)) for b in BATCHES]
    for layers in [args.cpu_layers] if args.cpu_layers else []:
        for mmap in (False, True):
            name = f"llama.cpp, {layers} layers' experts on the CPU, {'mmap' if mmap else 'no mmap'}"
            arms.append(Arm(name, lambda n=layers, m=mmap: plain(size, n, m)))
    share = f"strata, {args.slots_fraction:.0%} slots"
    arms.append(Arm(f"{share}, mirror, ring of lent slots", lambda: tier(mirror, False)))
    arms.append(Arm(f"{share}, mirror, ring of {RING_LAYERS} layers", lambda: tier(mirror, True)))
    arms.append(Arm(f"{share}, no mirror, ring of {RING_LAYERS} layers", lambda: tier(0, True)))
    print(f"{info.name}: {args.prompt} tokens; {machine(device)}; {args.rounds} rounds, arms in random order")
    with ExitStack() as stack:
        for arm in arms:
            arm.model = stack.enter_context(arm.open())
        _measure(arms, args)
        probes = [core.probe_copies(device, 64 << 20, ring=2, copies=8, pooled=False) for _ in range(5)]
    link = (64 << 20) / statistics.median(statistics.median(p["device_us"]) for p in probes) / 1e3
    best = max(arms[: len(BATCHES)], key=lambda arm: statistics.median(arm.rates))
    rows = []
    for arm in arms:
        ratio, low, high = bootstrap_ratio(arm.rates, best.rates)
        moved = f"{statistics.median(arm.link):.1f} ({statistics.median(arm.link) / link:.0%})" if arm.link else "-"
        rows.append([arm.name, str(Spread.of(arm.rates)), f"{ratio:.3f} ({low:.3f} to {high:.3f})", moved])
    print(f"\n{table(['arm', 'tok/s', 'of the best all on the device', 'GB/s over the link'], rows)}\n")
    print(f"link: {link:.1f} GB/s; next tokens {'equal' if all(a.same for a in arms) else 'NOT equal'}")
    if args.json:
        kept = [{"name": a.name, "tok/s": a.rates, "GB/s": a.link, "same": a.same} for a in arms]
        args.json.write_text(json.dumps({"machine": machine(device), "link": link, "arms": kept}, indent=1))
    return 0 if all(arm.same for arm in arms) else 1


def _measure(arms: list[Arm], args: argparse.Namespace) -> None:
    """The first round is not counted."""
    rng = random.Random(1)
    n_vocab = arms[0].model.model.n_vocab
    tokens = [rng.randrange(n_vocab // 4, n_vocab // 2) for _ in range(args.prompt)]
    first: int | None = None
    for round_ in range(args.rounds + 1):
        order = list(arms)
        if round_:
            rng.shuffle(order)
        for arm in order:
            tier = arm.model.tier
            arm.model.clear()
            before = tier.counters()["prompt"]["bytes_copied"] if tier else 0
            started = time.perf_counter()
            logits = arm.model.decode(tokens)
            seconds = time.perf_counter() - started
            first = int(logits.argmax()) if first is None else first
            arm.same = arm.same and int(logits.argmax()) == first
            if round_:
                arm.rates.append(len(tokens) / seconds)
                if tier:
                    arm.link.append((tier.counters()["prompt"]["bytes_copied"] - before) / seconds / 1e9)
