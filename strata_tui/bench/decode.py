"""`strata-tui bench decode`: decode speed of the tier against plain llama.cpp, interleaved, output checked.

Every arm reads the same random tokens (a random model's own text would soon repeat itself), so that all
route the same way. Rounds go through the arms in turn. Each arm's choice after every token is compared
with the first arm's: kernels may round differently, so agreement is reported and asserted, not equality.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from .ranges import above_zero, fraction, from_zero, whole
from .report import Spread, amount, machine, table


@dataclass(slots=True)
class Arm:
    """One way to run the model. `slots` None: plain llama.cpp with `cpu_layers` layers' experts on the CPU."""

    name: str
    slots: int | None = None
    cpu_layers: int = 0
    mirror: int = 0
    rates: list[float] = field(default_factory=list)  # decode tokens per second, one per round
    prompt_rates: list[float] = field(default_factory=list)
    hit_rates: list[float] = field(default_factory=list)
    agreement: float | None = None  # share of top choices equal to the first arm's
    divergence: float | None = None  # mean KL from the first arm's distribution, nats


def add_parser(subparsers: Any) -> None:
    """Adds `decode` to bench's subparsers."""
    p: argparse.ArgumentParser = subparsers.add_parser(
        "decode", help="decode speed against plain llama.cpp", description=__doc__
    )
    p.add_argument("model", metavar="GGUF", type=Path)
    p.add_argument("--gpu", metavar="N", type=int, help="CUDA device (default: most free memory; -1: CPU)")
    p.add_argument(
        "--slots-fraction",
        metavar="SHARE",
        type=fraction,
        nargs="+",
        default=[0.5],
        help="of all experts (default: 0.5)",
    )
    p.add_argument(
        "--cpu-layers",
        metavar="N",
        type=whole(0),
        nargs="*",
        default=[],
        help="arms of plain llama.cpp with N layers' experts on the CPU",
    )
    p.add_argument("--plain", action="store_true", help="an arm of plain llama.cpp with everything on the device")
    p.add_argument(
        "--mirror-gib", metavar="GIB", type=from_zero, default=0.0, help="pinned RAM for experts (default: 0)"
    )
    p.add_argument("--no-mirror-too", action="store_true", help="with --mirror-gib: also an arm without")
    p.add_argument(
        "--limit-link", metavar="GB/S", type=above_zero, default=0.0, help="of strata's copies (default: none)"
    )
    p.add_argument("--prompt", metavar="N", type=whole(1), default=64)
    p.add_argument(
        "--warm",
        metavar="N",
        type=whole(0),
        default=256,
        help="tokens decoded before the first measurement (default: 256)",
    )
    p.add_argument("--tokens", metavar="N", type=whole(1), default=128, help="tokens a round (default: 128)")
    p.add_argument("--rounds", metavar="N", type=whole(1), default=5)
    p.add_argument("--threads", metavar="N", type=whole(1), default=0, help="(default: the cores of this process)")
    p.add_argument(
        "--min-agreement", metavar="SHARE", type=from_zero, default=0.95, help="fail below this (default: 0.95)"
    )
    p.add_argument("--json", metavar="FILE", type=Path)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 0; 1 when the arms' output does not agree. Raises UserError."""
    import os

    from ..engine import gguf_info, native
    from ..engine.llama import LowLevel, Placement

    core = native.load()
    info = gguf_info.read_info(args.model)
    device = native.pick_device(args.gpu)
    experts = sum(group[1] for group in gguf_info.expert_groups(info))
    if not experts:
        raise UserError(f"{args.model} has no experts: there is nothing to compare.")
    if args.limit_link and device == "CPU":
        raise UserError(f"--limit-link {args.limit_link:g} cannot be used: it takes a GPU.")
    threads = args.threads or len(os.sched_getaffinity(0))
    arms = [Arm("llama.cpp, all on the device")] if args.plain else []
    mirror = int(args.mirror_gib * 2**30)
    for share in args.slots_fraction:
        arms.append(
            Arm(f"strata, {share:.0%} slots" + (", mirror" if mirror else ""), round(share * experts), mirror=mirror)
        )
        if mirror and args.no_mirror_too:
            arms.append(Arm(f"strata, {share:.0%} slots, no mirror", round(share * experts)))
    arms += [Arm(f"llama.cpp, experts of {n} layers on the CPU", cpu_layers=n) for n in args.cpu_layers]

    context = args.prompt + args.warm + args.tokens * args.rounds + 64
    rng = random.Random(1)
    vocab = 0
    opened: list[LowLevel] = []
    try:
        for arm in arms:
            started = time.monotonic()
            opened.append(
                LowLevel(
                    args.model,
                    tier=arm.slots is not None,
                    slots=arm.slots,
                    device=device,
                    context=context,
                    threads=threads,
                    mirror=arm.mirror,
                    placement=Placement(device, arm.cpu_layers),
                )
            )
            limited = opened[-1].tier
            if args.limit_link and limited is not None:
                limited.limit_link(args.limit_link)
            vocab = opened[-1].model.n_vocab
            print(f"{arm.name}: opened in {time.monotonic() - started:.1f} s", file=sys.stderr)
        tokens = [rng.randrange(vocab // 4, vocab * 3 // 4) for _ in range(context)]
        cursor = args.prompt
        for arm, model in zip(arms, opened, strict=True):
            started = time.perf_counter()
            model.decode(tokens[:cursor])
            arm.prompt_rates.append(cursor / (time.perf_counter() - started))
        for model in opened:
            for token in tokens[cursor : cursor + args.warm]:
                model.decode([token])
        cursor += args.warm
        choices: list[list[Any]] = [[] for _ in arms]
        kl: list[list[float]] = [[] for _ in arms]
        for _ in range(args.rounds):
            first: list[Any] = []
            for index, (arm, model) in enumerate(zip(arms, opened, strict=True)):
                tier = model.tier
                if tier is not None:
                    tier.set_phase(core.PHASE_DECODE)
                before = tier.counters()["decode"] if tier is not None else {}
                rows = []
                started = time.perf_counter()
                for token in tokens[cursor : cursor + args.tokens]:
                    rows.append(model.decode([token]))
                arm.rates.append(args.tokens / (time.perf_counter() - started))
                if tier is not None:
                    after = tier.counters()["decode"]
                    arm.hit_rates.append((after["hits"] - before["hits"]) / max(1, after["picks"] - before["picks"]))
                    tier.verify(16, len(arm.rates))
                if not index:
                    first = rows
                choices[index] += [int(row.argmax()) for row in rows]
                kl[index] += [_kl(a, b) for a, b in zip(first, rows, strict=True)]
            cursor += args.tokens
        for index, arm in enumerate(arms[1:], 1):
            arm.agreement = float(np.mean([a == b for a, b in zip(choices[0], choices[index], strict=True)]))
            arm.divergence = float(np.mean(kl[index]))
    finally:
        for model in opened:
            model.close()

    size = f"{experts} experts, {amount(info.expert_bytes)} of experts"
    print(f"{info.name or args.model.name}: {size}; {machine(device)}; {threads} threads")
    if args.limit_link:
        print(f"strata's copies limited to {args.limit_link:g} GB/s")
    print(f"{args.rounds} rounds of {args.tokens} tokens, arms interleaved; median (low to high)\n")
    head = ["arm", "decode tok/s", "hit rate", "same top choice", "mean KL", "ratio to first"]
    rows_out = []
    for arm in arms:
        ratio = Spread.of([a / b for a, b in zip(arm.rates, arms[0].rates, strict=True)])
        rows_out.append(
            [
                arm.name,
                str(Spread.of(arm.rates)),
                f"{np.median(arm.hit_rates):.3f}" if arm.hit_rates else "-",
                "-" if arm.agreement is None else f"{arm.agreement:.4f}",
                "-" if arm.divergence is None else f"{arm.divergence:.2e}",
                f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})",
            ]
        )
    print(table(head, rows_out))
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(device), "arms": [asdict(arm) for arm in arms]}, indent=1))
    bad = [arm.name for arm in arms if arm.agreement is not None and arm.agreement < args.min_agreement]
    if bad:
        print(
            f"\nThe output of {', '.join(bad)} does not agree with that of {arms[0].name}: these numbers say nothing.",
            file=sys.stderr,
        )
    return 1 if bad else 0


def _kl(a: Any, b: Any) -> float:
    """KL divergence in nats of the softmax of logits `b` from that of `a`."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    x -= x.max() + np.log(np.exp(x - x.max()).sum())
    y -= y.max() + np.log(np.exp(y - y.max()).sum())
    return float((np.exp(x) * (x - y)).sum())
