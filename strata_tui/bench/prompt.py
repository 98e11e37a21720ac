"""`strata-tui bench prompt`: prompt speed with every profile of the stager, chosen and automatic, warm and cold.

Every arm reads the same random tokens with the same slots. Rounds go through the chosen profiles in an order of their
own, each with a run of the automatic one right beside it, so that what else the machine does meets both. Cold runs
begin with the model's file dropped from the page cache (and fail when it is not cold), warm ones with all of it there.
Each run's logits are hashed: all must be the same. The verdict is on the chosen profile beside which the automatic one
did worst.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from . import prompt_plain
from .page_cache import make_cold, make_warm
from .ranges import fraction, from_zero, whole
from .report import Spread, amount, bootstrap_ratio, machine, table

if TYPE_CHECKING:
    from ..engine.llama import LowLevel

CHOSEN = (("ram", 2), ("ram", 4), ("ram", 8), ("ssd", 8), ("ssd", 16), ("ssd", 32))
NEEDED = 0.95  # of the best chosen profile's speed
PAIRS = 15  # rounds without which nothing is decided


@dataclass(slots=True)
class Arm:
    """One way of staging. `threads` 0: as many as the stager finds useful; `mirror`: bytes of the mirror."""

    profile: str  # "ram", "ssd" or "auto"
    threads: int
    mirror: int
    rates: list[float] = field(default_factory=list)  # prompt tokens per second, one per run
    beside: list[float] = field(default_factory=list)  # of the automatic profile's runs beside those of a chosen one
    waited: list[float] = field(default_factory=list)  # seconds, of the thread that decodes, for experts
    asks: list[int] = field(default_factory=list)
    ask_ms: list[float] = field(default_factory=list)
    read: int = 0  # bytes from the file, of the last run
    ended: str = ""  # the stager's own words after the last run

    @property
    def name(self) -> str:
        """Without the mirror."""
        return f"{self.profile} {self.threads}" if self.threads else self.profile


@dataclass(frozen=True, slots=True)
class Verdict:
    """The automatic profile over a chosen one: the mean of their pairs' ratios and its 95 % interval."""

    chosen: str
    ratio: float
    low: float
    high: float
    pairs: int

    @property
    def holds(self) -> bool:
        return self.low >= NEEDED and self.pairs >= PAIRS

    def __str__(self) -> str:
        return (
            f"auto / {self.chosen}: {self.ratio:.3f}, 95 % interval {self.low:.3f} to {self.high:.3f}, "
            f"{self.pairs} pairs: {'holds' if self.holds else 'undecided'}"
        )


def add_parser(subparsers: Any) -> None:
    """Adds `prompt` to bench's subparsers."""
    p: argparse.ArgumentParser = subparsers.add_parser(
        "prompt", help="prompt speed with every stager profile", description=__doc__
    )
    p.add_argument("model", metavar="GGUF", type=Path)
    p.add_argument("--gpu", metavar="N", type=int, help="CUDA device (default: most free memory; -1: CPU)")
    p.add_argument(
        "--slots-fraction", metavar="SHARE", type=fraction, default=0.5, help="of all experts (default: 0.5)"
    )
    p.add_argument("--prompt", metavar="N", type=whole(1), default=1024, help="tokens (default: 1024)")
    p.add_argument("--batch", metavar="N", type=whole(1), default=512, help="tokens computed at once (default: 512)")
    p.add_argument("--cache", choices=("warm", "cold"), nargs="+", default=["warm", "cold"])
    p.add_argument("--mirror-gib", metavar="GIB", type=from_zero, default=0.0, help="also every arm with such a mirror")
    p.add_argument("--pool-buffers", metavar="N", type=whole(2), default=24, help="(default: 24, as the chat)")
    p.add_argument("--stream-from", metavar="N", type=whole(0), help="as strata-tui's flag (default: as planned)")
    p.add_argument("--threads", metavar="N", type=whole(1), default=0, help="(default: the cores of this process)")
    p.add_argument("--rounds", metavar="N", type=whole(1), default=5, help=f"(default: 5; a verdict takes {PAIRS})")
    p.add_argument("--plain", action="store_true", help="beside plain llama.cpp instead, on a GPU, warm")
    p.add_argument("--cpu-layers", metavar="N", type=whole(0), default=0, help="with --plain: also such an arm")
    p.add_argument("--json", metavar="FILE", type=Path)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 when the arms' logits differ. Raises UserError."""
    import os

    from ..engine import gguf_info, native

    native.load()
    info = gguf_info.read_info(args.model)
    experts = sum(group[1] for group in gguf_info.expert_groups(info))
    if not experts:
        raise UserError(f"{args.model} has no experts: there is nothing to stage.")
    device = native.pick_device(args.gpu)
    args.threads = args.threads or len(os.sched_getaffinity(0))
    if args.plain:
        return prompt_plain.run(args, info, experts, device)
    mirrors = [0] + ([int(args.mirror_gib * 2**30)] if args.mirror_gib else [])
    print(
        f"{info.name or args.model.name}: {experts} experts, {amount(info.expert_bytes)} of experts, "
        f"{args.slots_fraction:.0%} slots; {args.prompt} tokens in batches of {args.batch}; "
        f"{machine(device)}; {args.threads} threads\n{args.rounds} rounds, arms interleaved; "
        "median (low to high), mean of the pairs' ratios (95 % interval)"
    )
    found: dict[str, Any] = {"machine": machine(device), "user": os.getuid(), "args": vars(args) | {"run": None}}
    hashes: set[str] = set()
    with ExitStack() as stack:
        models = {m: stack.enter_context(_open(device, round(args.slots_fraction * experts), m, args)) for m in mirrors}
        for cache in args.cache:
            arms = [Arm(profile, n, m) for m in mirrors for profile, n in (*CHOSEN, ("auto", 0))]
            hashes |= _measure(arms, models, cache, info.shards, args)
            verdicts = {m: verdict([arm for arm in arms if arm.mirror == m]) for m in mirrors}
            print(f"\n{cache} page cache\n\n{_table(arms)}\n")
            for mirror, one in verdicts.items():
                print(f"{cache}, {'mirror' if mirror else 'no mirror'}: {one}")
            found[cache] = {
                "arms": [asdict(arm) for arm in arms],
                "verdicts": {str(m): asdict(v) | {"holds": v.holds} for m, v in verdicts.items()},
            }
    same = len(hashes) == 1
    print(f"\nlogits of all arms: {'equal, ' + hashes.copy().pop()[:16] if same else 'NOT equal'}")
    if args.json:
        args.json.write_text(json.dumps(found | {"equal": same}, indent=1, default=str))
    return 0 if same else 1


def _open(device: str, slots: int, mirror: int, args: argparse.Namespace) -> LowLevel:
    from ..engine.llama import LowLevel
    from ..engine.plan import STREAM_FROM, start_stream

    model = LowLevel(
        args.model,
        slots=slots,
        device=device,
        context=args.prompt + 64,
        batch=args.batch,
        threads=args.threads,
        mirror=mirror,
        pool_buffers=args.pool_buffers,
    )
    tier = model.tier
    assert tier is not None
    start_stream(tier, STREAM_FROM[not tier.on_gpu] if args.stream_from is None else args.stream_from)
    return model


def _measure(
    arms: Sequence[Arm], models: dict[int, LowLevel], cache: str, files: Sequence[Path], args: argparse.Namespace
) -> set[str]:
    """Runs every pair once a round; returns the hashes of their logits. The first run of all is not counted."""
    rng = random.Random(1)
    n_vocab = next(iter(models.values())).model.n_vocab
    tokens = [rng.randrange(n_vocab // 4, n_vocab // 2) for _ in range(args.prompt)]
    hashes = set()
    if cache == "warm":
        make_warm(files)
    for mirror, model in models.items():  # memory is touched, residents are those that a run leaves behind
        hashes.add(_run(Arm("ram", 2, mirror), model, tokens, cache, files))
    autos = {arm.mirror: arm for arm in arms if arm.profile == "auto"}
    for round_ in range(args.rounds):
        order = [arm for arm in arms if arm.profile != "auto"]
        rng.shuffle(order)
        for arm in order:
            auto = autos[arm.mirror]
            for one in rng.sample([arm, auto], 2):
                hashes.add(_run(one, models[one.mirror], tokens, cache, files))
            arm.beside.append(auto.rates[-1])
        if sys.stderr.isatty():
            print(f"\r{cache}: round {round_ + 1} of {args.rounds}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return hashes


def _run(arm: Arm, model: LowLevel, tokens: Sequence[int], cache: str, files: Sequence[Path]) -> str:
    from ..engine import native
    from ..engine.telemetry import ram_for_core

    core, tier = native.load(), model.tier
    assert tier is not None
    profile = {"ram": core.STAGER_RAM, "ssd": core.STAGER_SSD, "auto": core.STAGER_AUTO}[arm.profile]
    if cache == "cold":
        make_cold(files)
    tier.set_modes(core.PIN_AUTO, profile, ram_for_core(), arm.threads)
    tier.set_phase(core.PHASE_PROMPT, ram_for_core())
    model.clear()
    digest = hashlib.sha256()
    before = tier.counters()["prompt"]
    started = time.perf_counter()
    for start in range(0, len(tokens), model.context.batch):
        digest.update(model.decode(tokens[start : start + model.context.batch]).tobytes())
    seconds = time.perf_counter() - started
    after = tier.counters()["prompt"]
    spent = {name: after[name] - before[name] for name in after}
    arm.rates.append(len(tokens) / seconds)
    arm.waited.append(spent["wait_ns"] / 1e9)
    arm.asks.append(spent["asks"])
    arm.ask_ms.append(spent["ask_ns"] / 1e6)
    arm.read = spent["bytes_filled"]
    arm.ended = tier.stager()["reason"]
    return digest.hexdigest()


def compare(arm: Arm) -> Verdict:
    """The automatic profile with a chosen one."""
    return Verdict(arm.name, *bootstrap_ratio(arm.beside, arm.rates), len(arm.rates))


def verdict(arms: Sequence[Arm]) -> Verdict:
    """The least favourable of all comparisons."""
    return min((compare(arm) for arm in arms if arm.profile != "auto"), key=lambda one: one.ratio)


def _table(arms: Sequence[Arm]) -> str:
    head = ["arm", "mirror", "tok/s", "auto beside it / it", "waited s", "read", "asks (ms)", "at the end"]
    rows = []
    for arm in arms:
        ratio, asks = "-", "-"
        if arm.profile == "auto":
            asks = f"{statistics.median(arm.asks):.0f} ({statistics.median(arm.ask_ms):.1f})"
        else:
            found = compare(arm)
            ratio = f"{found.ratio:.3f} ({found.low:.3f} to {found.high:.3f})"
        waited = f"{statistics.median(arm.waited):.2f}"
        mirror = amount(arm.mirror) if arm.mirror else "-"
        rows.append([arm.name, mirror, str(Spread.of(arm.rates)), ratio, waited, amount(arm.read), asks, arm.ended])
    return table(head, rows)
