"""`strata-tui bench stage`: what copies cost, pageable and pinned, bare and through the stage pool. CUDA only.

The first table is a micro-benchmark of one blob size over a ring of buffers, one wait per copy: `host` is the time
of the calling thread to queue a copy, `end to end` the time on the copy stream between events around it. With a
model, the second table measures the tiers: building the pool, filling it without copies, pre-fill of the slots,
refill of slots, and swaps. Arms are interleaved; every arm compares bytes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .ranges import above_zero, from_zero, whole
from .report import Spread, machine, table

if TYPE_CHECKING:
    from ..engine import _core

MIB = 1 << 20
POOL = 24  # stage buffers, as in the chat


def add_parser(subparsers: Any) -> None:
    """Adds `stage` to bench's subparsers."""
    p: argparse.ArgumentParser = subparsers.add_parser("stage", help="cost of staged copies", description=__doc__)
    p.add_argument("model", metavar="GGUF", type=Path, nargs="?", help="also measure the tiers with this model")
    p.add_argument("--gpu", metavar="N", type=int)
    p.add_argument("--size-mib", metavar="MIB", type=above_zero, default=1.5, help="of a blob (default: 1.5)")
    p.add_argument("--ring", metavar="N", type=whole(1), default=64, help="buffers (default: 64)")
    p.add_argument("--copies", metavar="N", type=whole(1), default=512, help="an arm and round (default: 512)")
    p.add_argument("--rounds", metavar="N", type=whole(1), default=5)
    p.add_argument("--refill", metavar="N", type=whole(1), default=530, help="slots of a refill (default: 530)")
    p.add_argument("--mirror-gib", metavar="GIB", type=from_zero, default=4.0)
    p.add_argument("--json", metavar="FILE", type=Path)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 when bytes came out wrong. Raises UserError."""
    from ..engine import native

    core = native.load()
    device = native.pick_device(args.gpu)
    if device == "CPU":
        raise UserError("bench stage measures copies to a GPU, and llama.cpp offers none here.")
    size = int(args.size_mib * MIB)
    if not size:
        raise UserError(f"--size-mib {args.size_mib:g} is less than one byte.")
    print(machine(device))
    found: dict[str, Any] = {"machine": machine(device), "size": size}
    good = _copies(core, device, size, args, found)
    if args.model is not None:
        good = _tiers(core, device, args, found) and good
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))
    return 0 if good else 1


def _name(pin: bool, fill: bool, pooled: bool) -> str:
    parts = ["pinned" if pin else "pageable", "fill then copy" if fill else "copy only"]
    return ", ".join(parts if pooled else [*parts, "bare"])


def _copies(core: Any, device: str, size: int, args: argparse.Namespace, found: dict[str, Any]) -> bool:
    arms = [
        (_name(pin, fill, pooled), {"pin": pin, "fill": fill, "pooled": pooled})
        for fill in (False, True)
        for pin, pooled in ((True, False), (True, True), (False, True))
    ]
    host: dict[str, list[float]] = defaultdict(list)
    device_us: dict[str, list[float]] = defaultdict(list)
    back_to_back: dict[str, list[float]] = defaultdict(list)
    equal = True
    link: list[float] = []
    for _ in range(args.rounds):
        big = core.probe_copies(device, 64 * MIB, ring=2, copies=8, pooled=False)
        link.append(64 * MIB / statistics.median(big["device_us"]) / 1e3)
        for name, pooled in (("bare", False), ("through the pool", True)):
            got = core.probe_copies(device, size, ring=args.ring, copies=args.copies, pooled=pooled, pipelined=True)
            back_to_back[name].append(size * args.copies / got["total_s"] / 1e9)
            equal = equal and got["equal"]
        for name, how in arms:
            got = core.probe_copies(device, size, ring=args.ring, copies=args.copies, **how)
            if how["pin"] and not got["pinned"]:
                print(f"{name}: the driver refused pinned memory")
            host[name].append(statistics.median(got["host_us"]))
            device_us[name].append(statistics.median(got["device_us"]))
            equal = equal and got["equal"]
    rows = []
    for name, _ in arms:
        rate = [size / us / 1e3 for us in device_us[name]]
        rows.append([name, str(Spread.of(host[name])), str(Spread.of(device_us[name])), str(Spread.of(rate))])
    print(f"\n{args.size_mib} MiB, ring of {args.ring}, {args.rounds} x {args.copies} copies, medians (low to high)\n")
    print(table(["arm", "host us", "end to end us", "GB/s"], rows))
    print(f"\nlink, 64 MiB pinned: {Spread.of(link)} GB/s")
    both = [f"{name} {Spread.of(rates)} GB/s" for name, rates in back_to_back.items()]
    print(f"pinned copies back to back: {', '.join(both)}")
    slow = core.probe_copies(device, size, ring=4, copies=256, pipelined=True, limit=2.0)
    share = slow["wait_cpu_s"] / max(slow["wait_wall_s"], 1e-9)
    print(f"waiting for the pool on a link of 2 GB/s: {share:.1%} of its wall time on the processor")
    found.update(host_us=host, device_us=device_us, link=link, back_to_back=back_to_back, waiting=share)
    return bool(equal and slow["equal"])


def _tiers(core: Any, device: str, args: argparse.Namespace, found: dict[str, Any]) -> bool:
    from ..engine import gguf_info
    from ..engine.llama import LowLevel

    info = gguf_info.read_info(args.model)
    experts = sum(group[1] for group in gguf_info.expert_groups(info))
    if not experts:
        raise UserError(f"{args.model} has no experts.")
    blob = info.expert_bytes / experts
    results: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(args.rounds):
        for pin in (core.PIN_ON, core.PIN_OFF):
            name = "pinned" if pin == core.PIN_ON else "pageable"
            how = {"slots": experts // 2, "device": device, "pool_buffers": POOL, "context": 512}
            started = time.perf_counter()
            with LowLevel(args.model, modes=(pin, core.STAGER_RAM), **how) as model:
                assert model.tier is not None
                model.tier.prefill()
                model.decode([1000])
                results["open to first token, s"][name].append(time.perf_counter() - started)
            with LowLevel(args.model, **how) as model:
                tier = model.tier
                assert tier is not None
                started = time.perf_counter()
                tier.set_modes(pin, core.STAGER_RAM)
                results["build the pool, ms"][name].append(1e3 * (time.perf_counter() - started))
                results["fill without copies, GB/s"][name].append(tier.fill_rate(512) / 1e9)
                started = time.perf_counter()
                filled = tier.prefill()
                tier.refill(1)  # waits for the pre-fill's copies, too
                seconds = time.perf_counter() - started
                results["pre-fill of half the slots, GB/s"][name].append(filled * blob / seconds / 1e9)
                results["refill from the file, GB/s"][name].append(_refill(tier, args.refill, blob))
                if pin == core.PIN_ON and args.mirror_gib:
                    tier.fill_mirror(int(args.mirror_gib * 2**30))
                    results["refill from the mirror, GB/s"][name].append(_refill(tier, args.refill, blob))
                    results["swap round, host ms"][name].append(_swap_round(core, model))
                tier.verify(64, 1)
    rows = [
        [what, *(str(Spread.of(by[arm])) if by.get(arm) else "-" for arm in ("pinned", "pageable"))]
        for what, by in results.items()
    ]
    print(
        f"\n{info.name or args.model.name}: {experts} experts of {blob / MIB:.2f} MiB; slots compared with the file\n"
    )
    print(table(["what, median (low to high)", "pinned", "pageable"], rows))
    found["tiers"] = results
    return True


def _refill(tier: _core.Tier, slots: int, blob: float) -> float:
    """GB/s of refilling so many slots, the last copy included."""
    started = time.perf_counter()
    done = tier.refill(slots)
    return done * blob / (time.perf_counter() - started) / 1e9


def _swap_round(core: Any, model: Any) -> float:
    """Host milliseconds of one round of the adaptive tier, over 64 decoded tokens."""
    tier = model.tier
    tier.set_policy(core.POLICY_ADAPTIVE)
    tier.set_phase(core.PHASE_DECODE)
    before = tier.swaps()
    for i in range(64):
        model.decode([1000 + 37 * i])
    after = tier.swaps()
    tier.set_policy(core.POLICY_LRU)
    return float(after["ns"] - before["ns"]) / 1e6 / max(1, after["rounds"] - before["rounds"])
