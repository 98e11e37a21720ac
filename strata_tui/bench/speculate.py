"""`strata-tui bench speculate`: what drafts are worth on one model: off, 1 to 4 of them, and auto.

For each share of slots the model is opened anew. What a window of n tokens costs is measured first. Then every prompt
is answered by each arm in turn (greedy, the model's own penalty), on one engine, so that all find the cache as the
others leave it; each reads the prompt anew, so that the text is the same until a window rounds differently. An arm's
speed is compared with that of "off" on the same prompt: pairs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import math
import statistics
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from . import speculate_curve
from .prompts import PROMPTS
from .ranges import above_zero, fraction, from_zero, whole
from .report import bootstrap_ratio, machine, table, wilson
from .speculate_curve import Curve

if TYPE_CHECKING:
    from ..engine.events import Event
    from ..engine.opening import OpenModel

ARMS = ("off", "1", "2", "3", "4", "auto")
PAIRS = 15  # that a verdict takes
NEVER_BELOW, WORTH = 0.97, 1.4  # of plain decoding: auto's lower bound on few slots, and auto with everything resident


@dataclass(slots=True)
class Result:
    """One arm on one class of prompts; one entry a reply."""

    rates: list[float] = field(default_factory=list)  # tokens a second
    beside: list[float] = field(default_factory=list)  # of "off" on the same prompt
    tokens: int = 0
    windows: int = 0
    offered: list[int] = field(default_factory=lambda: [0] * 4)
    accepted: list[int] = field(default_factory=lambda: [0] * 4)
    draft_ns: int = 0
    copied: int = 0  # bytes of experts brought to slots
    picks: int = 0
    hits: int = 0
    same: int = 0  # replies with the text of "off"
    gate: str = ""  # what the switch said last

    @property
    def ratio(self) -> tuple[float, float, float]:
        """To "off": the geometric mean, and the ends of its bootstrap 95 % interval."""
        return bootstrap_ratio(self.rates, self.beside)


def add_parser(subparsers: Any) -> None:
    """Adds `speculate` to bench's subparsers."""
    p: argparse.ArgumentParser = subparsers.add_parser("speculate", help="what drafts are worth", description=__doc__)
    p.add_argument("model", metavar="GGUF", type=Path, nargs="?", help="(default: the demo model)")
    p.add_argument("--gpu", metavar="N", type=int, help="CUDA device (default: most free memory; -1: CPU)")
    p.add_argument("--arms", metavar="ARM", nargs="+", choices=ARMS, default=list(ARMS))
    p.add_argument("--classes", metavar="CLASS", nargs="+", choices=tuple(PROMPTS), default=list(PROMPTS))
    p.add_argument(
        "--prompts", metavar="N", type=whole(1), default=PAIRS, help=f"of each class (default: {PAIRS}; 20 there are)"
    )
    p.add_argument("--passes", metavar="N", type=whole(1), default=1, help="over the prompts of a class (default: 1)")
    p.add_argument("--tokens", metavar="N", type=whole(8), default=128, help="a reply (default: 128)")
    p.add_argument("--warm", metavar="N", type=whole(0), default=2, help="replies of each arm that do not count")
    p.add_argument("--curve", metavar="N", type=whole(1), default=24, help="windows of each length (default: 24)")
    p.add_argument(
        "--slots-fraction", metavar="SHARE", type=fraction, nargs="+", default=[1.0], help="of all experts (default: 1)"
    )
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

    path = args.model or ensure_demo_model()
    experts = sum(group[1] for group in gguf_info.expert_groups(gguf_info.read_info(path)))
    device = native.pick_device(args.gpu)
    if args.limit_link and device == "CPU":
        raise UserError(f"--limit-link {args.limit_link:g} cannot be used: it takes a GPU.")
    kept: list[dict[str, Any]] = []
    for share in args.slots_fraction:
        slots = max(1, round(share * experts)) if experts else None
        with _opened(path, slots, args) as opened:
            name, missing = opened.about.name, opened.speculation.missing
            curve = speculate_curve.measure(opened, args.curve)
            results = _measure(opened, args)
        limit = f", link limited to {args.limit_link:g} GB/s" if args.limit_link else ""
        heads = f"; {missing}" if missing else ""
        print(f"\n{name}: {machine(device)}; {share:.0%} of {experts} slots{limit}{heads}\n\n{curve}\n")
        print(_table(results) + "\n")
        for line in verdicts(results, curve, share >= 1):
            print(line)
        kept.append(
            {
                "share": share,
                "curve": asdict(curve),
                "results": [{"class": kind, "arm": arm, **asdict(r)} for (kind, arm), r in results.items()],
            }
        )
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(device), "shares": kept}, indent=1))
    return 0


def _opened(path: Path, slots: int | None, args: argparse.Namespace) -> Any:
    """A context manager that gives an OpenModel."""
    from contextlib import closing

    from ..engine.loading import LoadControl
    from ..engine.modes import Modes
    from ..engine.opening import open_model
    from ..engine.options import EngineOptions

    options = EngineOptions(
        context=2048,
        slots=slots,
        mirror_gib=args.mirror_gib,
        gpu=args.gpu,
        threads=args.threads,
        lookup=not args.no_lookup,
    )
    opened = open_model(path, options, Modes(), lambda _: None, LoadControl(), logging.getLogger("strata-bench"))
    if args.limit_link:
        opened.tier.limit_link(args.limit_link)
    while opened.mirror.filling:  # a link that is busy with it would be slow for whoever comes first
        opened.mirror.step()
    return closing(opened)


def _measure(opened: OpenModel, args: argparse.Namespace) -> dict[tuple[str, str], Result]:
    from ..engine.modes import Drafting, Modes

    arms = ["off", *(arm for arm in args.arms if arm != "off")]
    results = {(kind, arm): Result() for kind in args.classes for arm in arms}
    ids = itertools.count(1)
    for kind in args.classes:
        prompts = PROMPTS[kind][: args.prompts]
        for n, prompt in enumerate([*prompts[: args.warm], *prompts * args.passes]):
            texts: dict[str, str] = {}
            speeds: dict[str, float] = {}
            turn = arms[n % len(arms) :] + arms[: n % len(arms)]  # none is always behind the same other
            for arm in turn:
                opened.apply(replace(Modes(), draft=Drafting(arm)))
                done, texts[arm] = _answer(opened, next(ids), prompt, args)
                speeds[arm] = done.decode_rate or math.nan
                if n >= args.warm:
                    _count(results[kind, arm], done)
            usable = all(math.isfinite(s) and s > 0 for s in speeds.values())  # a reply may be one token long
            for arm in arms if n >= args.warm and usable else ():
                results[kind, arm].rates.append(speeds[arm])
                results[kind, arm].beside.append(speeds["off"])
                results[kind, arm].same += texts[arm] == texts["off"]
            print(f"{kind} {n + 1}: " + ", ".join(f"{a} {s:.1f}" for a, s in speeds.items()), file=sys.stderr)
    return results


def _count(r: Result, done: Any) -> None:
    """Adds a reply's ReplyStats."""
    drafts, decode = done.drafts, done.counters.decode
    r.tokens += drafts.tokens
    r.windows += drafts.windows
    r.offered = [a + b for a, b in zip(r.offered, drafts.offered, strict=True)]
    r.accepted = [a + b for a, b in zip(r.accepted, drafts.accepted, strict=True)]
    r.draft_ns += drafts.draft_ns
    r.copied += decode.bytes_copied
    r.picks += decode.picks
    r.hits += decode.hits
    r.gate = done.gate


def _answer(opened: OpenModel, reply_id: int, prompt: str, args: argparse.Namespace) -> tuple[Any, str]:
    """(ReplyStats, text) of one reply."""
    from ..engine.events import FinishReason, Message, Sampling, TextDelta
    from ..engine.job import Hooks, Job
    from ..engine.reply import Reply

    text: list[str] = []
    opened.prefix.clear()
    opened.speculation.cut(0)

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


def _table(results: dict[tuple[str, str], Result]) -> str:
    lines = []
    for (kind, arm), r in results.items():
        first = (r.accepted[0], r.offered[0])
        ratio = "{:.3f} ({:.3f} to {:.3f})".format(*r.ratio) if arm != "off" and r.rates else ""
        lines.append(
            [
                kind,
                arm,
                f"{statistics.median(r.rates):.1f}" if r.rates else "-",
                ratio,
                f"{wilson(*first)} of {first[1]}" if first[1] else "-",
                " ".join(f"{a / o:.0%}" if o else "-" for a, o in zip(r.accepted, r.offered, strict=True)),
                f"{r.tokens / r.windows:.2f}" if r.windows else "-",
                f"{r.hits / r.picks:.3f}" if r.picks else "-",
                f"{r.copied / r.tokens / 2**20:.2f}" if r.tokens else "-",
                f"{r.same}/{len(r.rates)}",
            ]
        )
    head = ["prompts", "drafts", "tok/s", "to off (95 %)", "first draft accepted", "by position", "tokens a window"]
    return table([*head, "hit rate", "expert MiB a token", "text as off"], lines)


def verdicts(results: dict[tuple[str, str], Result], curve: Curve, resident: bool) -> list[str]:
    """Lines on auto: what was asked for and whether it holds, for each class, and what is possible at most."""
    lines = []
    autos = {kind: r for (kind, arm), r in results.items() if arm == "auto" and r.rates}
    for kind, r in autos.items():
        mean, low, high = r.ratio
        if len(r.rates) < PAIRS:
            word = f"undecided, a verdict takes {PAIRS} pairs"
        elif resident:
            word = f"{WORTH:g} is {'reached' if mean >= WORTH else 'not reached'}"
        else:
            word = f"never below {NEVER_BELOW:g} {'holds' if low >= NEVER_BELOW else 'does not hold'}"
        lines.append(f"auto / off, {kind}: {mean:.3f} ({low:.3f} to {high:.3f}), {len(r.rates)} pairs: {word}")
        lines.append(f"  {r.gate}")
    drafted = {arm: [r for (_, a), r in results.items() if a == arm] for arm in ARMS[1:]}
    for arm, rs in drafted.items():
        offered, accepted = ([sum(x) for x in zip(*(getattr(r, name) for r in rs), strict=True)] for name in _DRAFTED)
        if not any(offered):
            continue
        shares = [a / o if o else None for a, o in zip(accepted, offered, strict=True)]
        draft = sum(r.draft_ns for r in rs) / 1e6 / sum(offered)
        best, k = speculate_curve.most(curve, shares, draft)
        lines.append(
            f"windows of a fixed length, with {arm}'s acceptance and {draft:.2f} ms a draft: "
            + (f"{best:.2f} x plain at best, with {k} drafts" if k else "none is faster than plain decoding")
        )
    return lines


_DRAFTED = ("offered", "accepted")
