"""`strata-tui bench speculate`: what drafts are worth on one model: off, 1 to 4 of them, and auto.

Every prompt is answered by each arm in turn (greedy, the model's own penalty), on one engine, so that all find
the cache as the others leave it. An arm's speed is compared with that of "off" on the same prompt: pairs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .prompts import PROMPTS
from .ranges import above_zero, fraction, from_zero, whole
from .report import machine, table

if TYPE_CHECKING:
    from ..engine.events import Event
    from ..engine.opening import OpenModel

ARMS = ("off", "1", "2", "3", "4", "auto")


@dataclass(slots=True)
class Result:
    """One arm on one class of prompts; one entry a reply."""

    rates: list[float] = field(default_factory=list)  # tokens a second
    ratios: list[float] = field(default_factory=list)  # to "off" on the same prompt
    tokens: int = 0
    windows: int = 0
    offered: list[int] = field(default_factory=lambda: [0] * 4)
    accepted: list[int] = field(default_factory=lambda: [0] * 4)
    copied: int = 0  # bytes of experts brought to slots
    same: int = 0  # replies with the text of "off"
    replies: int = 0


def add_parser(subparsers: Any) -> None:
    """Adds `speculate` to bench's subparsers."""
    p: argparse.ArgumentParser = subparsers.add_parser("speculate", help="what drafts are worth", description=__doc__)
    p.add_argument("model", metavar="GGUF", type=Path, nargs="?", help="(default: the demo model)")
    p.add_argument("--gpu", metavar="N", type=int, help="CUDA device (default: most free memory; -1: CPU)")
    p.add_argument("--arms", metavar="ARM", nargs="+", choices=ARMS, default=list(ARMS))
    p.add_argument("--classes", metavar="CLASS", nargs="+", choices=tuple(PROMPTS), default=list(PROMPTS))
    p.add_argument(
        "--prompts", metavar="N", type=whole(1), default=15, help="of each class (default: 15; 20 there are)"
    )
    p.add_argument("--tokens", metavar="N", type=whole(8), default=128, help="a reply (default: 128)")
    p.add_argument("--warm", metavar="N", type=whole(0), default=2, help="replies of each arm that do not count")
    p.add_argument("--slots-fraction", metavar="SHARE", type=fraction, default=1.0, help="of all experts (default: 1)")
    p.add_argument("--mirror-gib", metavar="GIB", type=from_zero, default=0.0)
    p.add_argument("--limit-link", metavar="GB/S", type=above_zero, default=0.0, help="of copies, on a GPU")
    p.add_argument("--temperature", metavar="X", type=from_zero, default=0.0)
    p.add_argument("--no-lookup", action="store_true", help="drafts of the model's NextN heads only")
    p.add_argument("--threads", metavar="N", type=whole(1), help="(default: as the engine does)")
    p.add_argument("--json", metavar="FILE", type=Path)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 0. Raises UserError."""
    from ..demo import ensure_demo_model
    from ..engine import gguf_info, native
    from ..engine.loading import LoadControl
    from ..engine.modes import Modes
    from ..engine.opening import open_model
    from ..engine.options import EngineOptions

    path = args.model or ensure_demo_model()
    experts = sum(group[1] for group in gguf_info.expert_groups(gguf_info.read_info(path)))
    device = native.pick_device(args.gpu)
    if args.limit_link and device == "CPU":
        raise UserError(f"--limit-link {args.limit_link:g} cannot be used: it takes a GPU.")
    options = EngineOptions(
        context=2048,
        slots=max(1, round(args.slots_fraction * experts)) if experts else None,
        mirror_gib=args.mirror_gib,
        gpu=args.gpu,
        threads=args.threads,
        lookup=not args.no_lookup,
    )
    log = logging.getLogger("strata-bench")
    opened = open_model(path, options, Modes(), lambda _: None, LoadControl(), log)
    try:
        if args.limit_link:
            opened.tier.limit_link(args.limit_link)
        results = _measure(opened, args)
    finally:
        opened.close()
    print(f"{opened.about.name}: {machine(device)}; {args.slots_fraction:.0%} of {experts} slots", end="")
    print(f", link limited to {args.limit_link:g} GB/s" if args.limit_link else "")
    lines = []
    for (kind, arm), r in results.items():
        first = (r.accepted[0], r.offered[0])
        lines.append(
            [
                kind,
                arm,
                f"{statistics.median(r.rates):.1f}",
                interval(r.ratios) if arm != "off" else "",
                f"{wilson(*first)} of {first[1]}" if first[1] else "-",
                " ".join(f"{a / o:.0%}" if o else "-" for a, o in zip(r.accepted, r.offered, strict=True)),
                f"{r.tokens / r.windows:.2f}" if r.windows else "-",
                f"{r.copied / r.tokens / 2**20:.2f}" if r.tokens else "-",
                f"{r.same}/{r.replies}",
            ]
        )
    head = ["prompts", "drafts", "tok/s", "to off (95 %)", "first draft accepted", "by position", "tokens a window"]
    print(table([*head, "expert MiB a token", "text as off"], lines))
    if args.json:
        found = [{"class": kind, "arm": arm, **asdict(r)} for (kind, arm), r in results.items()]
        args.json.write_text(json.dumps({"machine": machine(device), "results": found}, indent=1))
    return 0


def _measure(opened: OpenModel, args: argparse.Namespace) -> dict[tuple[str, str], Result]:
    from ..engine.modes import Drafting, Modes

    arms = ["off", *(arm for arm in args.arms if arm != "off")]
    results = {(kind, arm): Result() for kind in args.classes for arm in arms}
    ids = itertools.count(1)
    for kind in args.classes:
        prompts = PROMPTS[kind][: args.prompts]
        for n, prompt in enumerate([*prompts[: args.warm], *prompts]):
            texts: dict[str, str] = {}
            speeds: dict[str, float] = {}
            turn = arms[n % len(arms) :] + arms[: n % len(arms)]  # none is always behind the same other
            for arm in turn:
                opened.apply(replace(Modes(), draft=Drafting(arm)))
                done, texts[arm] = _answer(opened, next(ids), prompt, args)
                speeds[arm] = done.decode_rate or math.nan
                if n < args.warm:
                    continue
                r = results[kind, arm]
                drafts = done.drafts
                assert drafts is not None
                r.rates.append(speeds[arm])
                r.tokens += drafts.tokens
                r.windows += drafts.windows
                r.offered = [a + b for a, b in zip(r.offered, drafts.offered, strict=True)]
                r.accepted = [a + b for a, b in zip(r.accepted, drafts.accepted, strict=True)]
                r.copied += done.counters.decode.bytes_copied
                r.replies += 1
            if n >= args.warm:
                for arm in arms:
                    results[kind, arm].ratios.append(speeds[arm] / speeds["off"])
                    results[kind, arm].same += texts[arm] == texts["off"]
            print(f"{kind} {n + 1}: " + ", ".join(f"{a} {s:.1f}" for a, s in speeds.items()), file=sys.stderr)
    return results


def _answer(opened: OpenModel, reply_id: int, prompt: str, args: argparse.Namespace) -> tuple[Any, str]:
    """(ReplyStats, text) of one reply."""
    from ..engine.events import FinishReason, Message, Sampling, TextDelta
    from ..engine.job import Hooks, Job
    from ..engine.reply import Reply

    text: list[str] = []

    def emit(event: Event) -> None:
        if isinstance(event, TextDelta):
            text.append(event.text)

    sampling = Sampling(temperature=args.temperature, seed=1, max_tokens=args.tokens)
    hooks = Hooks(emit, lambda: False, lambda: None, lambda: None)
    job = Job(reply_id, (Message("user", prompt),), sampling)
    done = Reply(job, opened, hooks, logging.getLogger("strata-bench")).run()
    if done.reason is FinishReason.ERROR:
        raise UserError(done.message)
    return done.stats, "".join(text)


def wilson(hits: int, tries: int, z: float = 1.96) -> str:
    """A share with its 95 % interval."""
    p = hits / tries
    centre, spread = p + z * z / (2 * tries), z * math.sqrt(p * (1 - p) / tries + z * z / (4 * tries * tries))
    scale = 1 + z * z / tries
    return f"{p:.1%} ({(centre - spread) / scale:.1%} to {(centre + spread) / scale:.1%})"


def interval(ratios: Sequence[float]) -> str:
    """The geometric mean of ratios with its 95 % interval (Student's t)."""
    logs = [math.log(r) for r in ratios if r > 0]
    if len(logs) < 2:
        return f"{math.exp(logs[0]):.2f}" if logs else "-"
    mean, n = statistics.fmean(logs), len(logs)
    z, f = 1.96, n - 1
    t = z + (z**3 + z) / (4 * f) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * f * f)
    half = t * statistics.stdev(logs) / math.sqrt(n)
    return f"{math.exp(mean):.3f} ({math.exp(mean - half):.3f} to {math.exp(mean + half):.3f})"
