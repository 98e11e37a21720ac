"""`strata-tui bench identity`: a long prompt, then decoding, with every way of staging; all logits must be the same.

At equal slots nothing about pinning, the size of the stage pool or the mirror may change a single bit, on any device.
The arms are a cover of their pairs; each prints a hash of all its logits, and slots are compared with the file.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from .ranges import fraction, whole
from .report import machine, table


@dataclass(frozen=True, slots=True)
class Arm:
    """pinning: "on", "off", "auto" or "toggled" (every 8 tokens and every batch); mirror: share of the experts."""

    pinning: str
    pool: int
    mirror: float


ARMS = [
    Arm(pinning, pool, (0.0, 0.5, 1.0)[(i + j) % 3])
    for i, pinning in enumerate(("on", "off", "auto", "toggled"))
    for j, pool in enumerate((2, 16, 257))
]


def add_parser(subparsers: Any) -> None:
    """Adds `identity` to bench's subparsers."""
    p: argparse.ArgumentParser = subparsers.add_parser("identity", help="the same logits however experts are staged")
    p.add_argument("model", metavar="GGUF", type=Path)
    p.add_argument("--gpu", metavar="N", type=int)
    p.add_argument("--slots-fraction", metavar="SHARE", type=fraction, default=0.5)
    p.add_argument("--prompt", metavar="N", type=whole(1), default=4096)
    p.add_argument("--tokens", metavar="N", type=whole(1), default=512)
    p.add_argument("--threads", metavar="N", type=whole(1), default=2)
    p.add_argument(
        "--copy-delay-us", metavar="US", type=whole(0), default=0, help="CPU only: mean random delay of copies"
    )
    p.add_argument("--stream-from", metavar="N", type=whole(0), help="as strata-tui's flag (default: as planned)")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 when an arm's logits differ. Raises UserError."""
    from ..engine import gguf_info, native

    core = native.load()
    info = gguf_info.read_info(args.model)
    experts = sum(group[1] for group in gguf_info.expert_groups(info))
    if not experts:
        raise UserError(f"{args.model} has no experts.")
    device = native.pick_device(args.gpu)
    arms = ARMS
    print(f"{info.name or args.model.name}: {args.prompt} + {args.tokens} tokens; {machine(device)}\n", flush=True)
    rows, hashes = [], []
    for arm in arms:
        started = time.perf_counter()
        digest, counters = _logits(core, device, arm, round(args.slots_fraction * experts), info.expert_bytes, args)
        hashes.append(digest)
        seconds = f"{time.perf_counter() - started:.1f}"
        names = ("loads", "loads_mirror", "streamed", "evictions")
        counts = [str(sum(counters[phase][name] for phase in counters)) for name in names]
        rows.append([arm.pinning, str(arm.pool), f"{arm.mirror:.0%}", *counts, seconds, digest[:16]])
    print(
        table(
            ["pinning", "pool", "mirror", "loads", "from mirror", "streamed", "evictions", "s", "hash of all logits"],
            rows,
        )
    )
    same = len(set(hashes)) == 1
    print(f"\n{len(arms)} arms, {'all equal' if same else 'NOT equal'}")
    return 0 if same else 1


def _logits(core: Any, device: str, arm: Arm, slots: int, expert_bytes: int, args: argparse.Namespace) -> Any:
    from ..engine.llama import LowLevel
    from ..engine.plan import STREAM_FROM, start_stream

    pins = {"on": core.PIN_ON, "off": core.PIN_OFF, "auto": core.PIN_AUTO, "toggled": core.PIN_ON}
    with LowLevel(
        args.model,
        slots=slots,
        device=device,
        context=args.prompt + args.tokens + 64,
        threads=args.threads,
        modes=(pins[arm.pinning], core.STAGER_AUTO),
        mirror=int(arm.mirror * expert_bytes * 1.1),
        pool_buffers=arm.pool,
        copy_delay_us=args.copy_delay_us,
    ) as model:
        tier = model.tier
        assert tier is not None
        start_stream(tier, STREAM_FROM[not tier.on_gpu] if args.stream_from is None else args.stream_from)
        rng = random.Random(7)
        n_vocab = model.model.n_vocab
        tokens = [rng.randrange(n_vocab // 4, n_vocab // 2) for _ in range(args.prompt + args.tokens)]
        digest = hashlib.sha256()
        turns = 0

        def toggle() -> None:
            nonlocal turns
            turns += 1
            if arm.pinning == "toggled":
                tier.set_modes((core.PIN_OFF, core.PIN_ON)[turns % 2], core.STAGER_AUTO)

        for start in range(0, args.prompt, 512):
            digest.update(model.decode(tokens[start : min(start + 512, args.prompt)], all_logits=True).tobytes())
            toggle()
        tier.set_phase(core.PHASE_DECODE)
        for i, token in enumerate(tokens[args.prompt :]):
            if i % 8 == 0:
                toggle()
            digest.update(model.decode([token]).tobytes())
        tier.verify(256, 1)
        return digest.hexdigest(), tier.counters()
