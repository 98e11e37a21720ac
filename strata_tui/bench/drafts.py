"""`strata-tui bench drafts`: how often a model's NextN heads are right, and whether their windows change the text.

Every prompt is answered at temperature 0 (with the model's own repeat penalty, or another one) in windows of a fixed
number of drafts. Then

 - each window is decoded again as it was, without drafting, verifying or choosing, and its rows' likeliest tokens are
   compared with what the window gave;
 - the same text is decoded token by token. Kernels round by the number of rows, so where two tokens are nearly equal
   another one can be the likeliest: each such place is shown, with the distance of the two, beside the most by which
   that distance changes where the choice is the same.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .prompts import PROMPTS
from .ranges import above_zero, whole
from .report import machine, table, wilson

if TYPE_CHECKING:
    from ..engine.opening import OpenModel
    from ..engine.sampling import Resolved

Row = NDArray[np.float32]
NEEDED, LEAST = 0.6, 5000  # acceptance of the first draft that is asked for, and drafts that decide it
SHOWN = 20  # places where tokens differ


@dataclass(frozen=True, slots=True)
class Window:
    """`pending` stands at `position`, its drafts behind it; `chosen` is what was verified or sampled behind each."""

    position: int
    pending: int
    drafts: tuple[int, ...]
    chosen: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Where one by one another token is the likeliest: by how much, and by how much the window had its own in front."""

    prompt: int
    token: int  # of the reply
    window: str  # its text
    alone: str
    gap_alone: float
    gap_window: float


@dataclass(slots=True)
class Found:
    """`offered` and `accepted` by position; `same_rows`, `rows`: of the windows that were decoded again."""

    prompts: int = 0
    tokens: int = 0
    windows: int = 0
    offered: list[int] = field(default_factory=lambda: [0] * 4)
    accepted: list[int] = field(default_factory=lambda: [0] * 4)
    rows: int = 0
    same_rows: int = 0
    compared: int = 0  # tokens decoded one by one
    rounding: list[float] = field(default_factory=list)  # how the distance of the two likeliest changes, same choices
    differences: list[Difference] = field(default_factory=list)

    @property
    def explained(self) -> bool:
        """Whether the distance of the two likeliest changes no more where tokens differ than where they do not."""
        return all(d.gap_alone + d.gap_window <= max(self.rounding, default=0.0) for d in self.differences)


def add_parser(subparsers: Any) -> None:
    """Adds `drafts` to bench's subparsers."""
    p: argparse.ArgumentParser = subparsers.add_parser(
        "drafts", help="how often NextN heads are right", description=__doc__
    )
    p.add_argument("model", metavar="GGUF", type=Path, nargs="?", help="(default: the demo model)")
    p.add_argument("--gpu", metavar="N", type=int, help="CUDA device (default: most free memory; -1: CPU)")
    p.add_argument("--drafts", metavar="N", type=int, choices=(1, 2, 3, 4), default=2, help="a window (default: 2)")
    p.add_argument("--prompts", metavar="N", type=whole(1), default=60, help="in all (default: the 60 there are)")
    p.add_argument("--tokens", metavar="N", type=whole(2), default=256, help="most of a reply (default: 256)")
    p.add_argument(
        "--alone", metavar="N", type=whole(0), default=60, help="replies also decoded one by one (default: all)"
    )
    p.add_argument(
        "--repeat-penalty", metavar="X", type=above_zero, help="1: the likeliest token as it is (default: the model's)"
    )
    p.add_argument("--slots", metavar="N", type=whole(1), help="(default: as planned)")
    p.add_argument("--threads", metavar="N", type=whole(1), help="(default: as the engine does)")
    p.add_argument(
        "--training-text", metavar="FILE", type=Path, help="from train_head --keep-text: has it the prompts?"
    )
    p.add_argument("--json", metavar="FILE", type=Path)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 when a window that is decoded again gives another text, or one by one more than rounding does.

    Raises UserError.
    """
    from ..demo import ensure_demo_model
    from ..engine import native
    from ..engine.loading import LoadControl
    from ..engine.modes import Drafting, Modes
    from ..engine.opening import open_model
    from ..engine.options import EngineOptions

    path = args.model or ensure_demo_model()
    options = EngineOptions(context=1024, slots=args.slots, gpu=args.gpu, threads=args.threads, lookup=False)
    modes = Modes(draft=Drafting(str(args.drafts)))
    log = logging.getLogger("strata-bench")
    opened = open_model(path, options, modes, lambda _: None, LoadControl(), log)
    try:
        if opened.speculation.missing:
            raise UserError(f"{opened.about.name}: nothing to measure, {opened.speculation.missing}.")
        prompts = in_turn(args.prompts)
        if args.training_text:
            print(_seen(opened, args.training_text, prompts))
        found = Found()
        for number, prompt in enumerate(prompts):
            begun = time.monotonic()
            _measure(opened, number, prompt, args, found)
            took = time.monotonic() - begun
            print(f"prompt {number + 1} of {len(prompts)}: {took:.1f} s, {found.tokens} tokens", file=sys.stderr)
        name, device = opened.about.name, machine(native.pick_device(args.gpu))
        penalty = _sampling(opened, args).repeat_penalty
    finally:
        opened.close()
    settings = f"temperature 0, repeat penalty {penalty:g}, {args.drafts} drafts a window"
    print(f"{name}: {device}; {found.prompts} prompts, {settings}\n")
    print(_report(found))
    if args.json:
        args.json.write_text(
            json.dumps({"machine": device, "model": name, "repeat_penalty": penalty} | asdict(found), indent=1)
        )
    return 0 if found.same_rows == found.rows and found.explained else 1


def in_turn(most: int) -> list[str]:
    """Up to `most` prompts, of the classes in turn."""
    every = chain.from_iterable(zip_longest(*PROMPTS.values()))
    return list(islice((p for p in every if p is not None), most))


def _report(found: Found) -> str:
    lines = []
    for i, (accepted, offered) in enumerate(zip(found.accepted, found.offered, strict=True)):
        if offered:
            lines.append([str(i + 1), str(offered), wilson(accepted, offered)])
    first, drafts = (found.accepted[0] / found.offered[0] if found.offered[0] else 0.0), found.offered[0]
    text = [
        table(["draft", "offered", "accepted (95 %), of the windows that offer it"], lines),
        "",
        f"first draft: {first:.1%} of {drafts}; {NEEDED:.0%} of {LEAST} drafts or more are asked for: "
        + ("too few drafts" if drafts < LEAST else "holds" if first >= NEEDED else "does not hold"),
        f"{found.tokens} tokens in {found.windows} windows: {found.tokens / max(1, found.windows):.2f} a window",
        f"windows decoded again without drafting: {found.same_rows} of {found.rows} rows choose the same",
        f"one by one: {found.compared - len(found.differences)} of {found.compared} tokens are the same; "
        "where they are, the distance of the two likeliest changes by "
        f"{statistics.median(found.rounding or [0.0]):.4f} (at most {max(found.rounding, default=0.0):.4f})",
    ]
    if found.differences:
        shown = [
            [str(d.prompt), str(d.token), repr(d.window), repr(d.alone), f"{d.gap_window:.4f}", f"{d.gap_alone:.4f}"]
            for d in found.differences[:SHOWN]
        ]
        head = ["prompt", "token", "window", "one by one", "the window's top two are apart", "one by one's"]
        more = f"\n... and {len(found.differences) - SHOWN} more" if len(found.differences) > SHOWN else ""
        end = "all within rounding" if found.explained else "NOT all within rounding"
        text += ["", table(head, shown) + more, end]
    return "\n".join(text)


def _sampling(opened: OpenModel, args: argparse.Namespace) -> Resolved:
    from ..engine.events import Sampling
    from ..engine.sampling import resolve

    return resolve(Sampling(temperature=0, repeat_penalty=args.repeat_penalty), opened.info.metadata)


def _measure(opened: OpenModel, number: int, prompt: str, args: argparse.Namespace, found: Found) -> None:
    from ..engine.events import Message

    tokens = opened.format.prompt([Message("user", prompt)]).tokens
    sampling = _sampling(opened, args)
    first, windows = _write(opened, tokens, sampling, args.tokens)
    found.prompts += 1
    found.windows += len(windows)
    found.tokens += sum(len(w.chosen) for w in windows)
    for w in windows:
        right = 0
        while right < min(len(w.drafts), len(w.chosen)) and w.drafts[right] == w.chosen[right]:
            right += 1
        for i in range(len(w.drafts)):
            found.offered[i] += 1
            found.accepted[i] += i < right
    text = [*tokens, first]
    rows: list[Row] = []
    _read(opened, tokens)
    for w in windows:
        again = _rows(opened, [w.pending, *w.drafts], w.position)
        for i, chosen in enumerate(w.chosen):
            rows.append(penalised(again[i], text, sampling))
            found.same_rows += int(rows[-1].argmax()) == chosen
            found.rows += 1
            text.append(chosen)
        _keep(opened, text[:-1])
    if number < args.alone:
        _one_by_one(opened, number, tokens, text, rows, sampling, found)


def _write(opened: OpenModel, tokens: list[int], sampling: Resolved, most: int) -> tuple[int, list[Window]]:
    """The reply's first token, and the windows that the others came from."""
    from ..engine.sampler import Sampler
    from ..engine.speculate import Spoiled

    speculation = opened.speculation
    speculation.cut(0)
    _read(opened, tokens, observe=True)
    sampler = Sampler(opened.model, sampling)
    sampler.accept(tokens)
    speculation.begin(tokens, sampler, 0)
    windows: list[Window] = []
    text = list(tokens)
    try:
        first = pending = speculation.first()
        position, written = len(tokens), 1
        while written < most and not opened.model.is_end(pending):
            try:
                status, chosen = speculation.round(pending, position, most - written)
                _check(opened, status)
            except Spoiled as spoiled:
                chosen = spoiled.tokens
                speculation.cut(0)
                _read(opened, [*text, pending, *chosen[:-1]], observe=True)
            text += [pending, *chosen[:-1]]
            windows.append(Window(position, pending, tuple(speculation.last), tuple(chosen)))
            position, written, pending = position + len(chosen), written + len(chosen), chosen[-1]
    finally:
        speculation.end()
        sampler.close()
    return first, windows


def _one_by_one(
    opened: OpenModel,
    number: int,
    prompt: list[int],
    text: list[int],
    rows: Sequence[Row],
    sampling: Resolved,
    found: Found,
) -> None:
    """Decodes `text` behind its prompt token by token; `rows`: the windows' for each token behind the first."""
    _read(opened, prompt)
    known = len(prompt) + 1
    for i, row in enumerate(rows):
        so_far = text[: known + i]
        own = penalised(_rows(opened, [so_far[-1]], len(so_far) - 1)[0], so_far, sampling)
        found.compared += 1
        chosen, other = text[known + i], int(own.argmax())
        if other == chosen:
            rest = own.copy()
            rest[chosen] = -np.inf
            second = int(rest.argmax())
            found.rounding.append(abs(float((own[chosen] - own[second]) - (row[chosen] - row[second]))))
            continue
        words = [opened.model.token_text(t) for t in (chosen, other)]
        gaps = float(own[other] - own[chosen]), float(row[chosen] - row[other])
        found.differences.append(Difference(number + 1, i + 2, words[0], words[1], *gaps))


def penalised(row: Row, text: Sequence[int], sampling: Resolved) -> Row:
    """A row of logits (n_vocab,) behind `text` as the penalties leave it; a copy."""
    row = row.copy()
    window = text[-sampling.penalty_window :] if sampling.penalty_window else text[:0]
    if window:
        seen, counts = np.unique(np.array(window), return_counts=True)
        old = row[seen]
        old = np.where(old <= 0, old * np.float32(sampling.repeat_penalty), old / np.float32(sampling.repeat_penalty))
        row[seen] = old - (counts * sampling.frequency_penalty + sampling.presence_penalty).astype(np.float32)
    return row


# ---- the memory


def _read(opened: OpenModel, tokens: list[int], *, observe: bool = False) -> None:
    opened.prefix.clear()
    opened.tier.set_phase(opened.core.PHASE_PROMPT)
    for start in range(0, len(tokens), opened.context.batch):
        part = tokens[start : start + opened.context.batch]
        opened.prepare(len(part))
        _check(opened, opened.context.decode(part, start))
        if observe:
            opened.speculation.observe(part, start)
    opened.tier.set_phase(opened.core.PHASE_DECODE)


def _rows(opened: OpenModel, tokens: list[int], position: int) -> list[Row]:
    _check(opened, opened.context.decode(tokens, position, all_logits=True))
    return [opened.context.logits(i).copy() for i in range(len(tokens))]


def _keep(opened: OpenModel, text: list[int]) -> None:
    """Takes back what stands behind `text`; where the memory cannot, reads `text` again."""
    if opened.context.pos_max() >= len(text) and not opened.context.remove_from(len(text)):
        _read(opened, text)


def _check(opened: OpenModel, status: int) -> None:
    if status != 0:
        raise UserError(f"The engine stopped while computing (llama_decode {status}): {opened.tier.last_error()}.")


def _seen(opened: OpenModel, path: Path, prompts: Sequence[str]) -> str:
    """Whether the text that a head was trained on has one of the prompts in it."""
    from ..demo.train_head import load_text

    try:
        talks = load_text(path)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} holds no training text: {error}.") from error
    pieces = [opened.model.piece(token) for token in range(opened.model.n_vocab)]
    texts = [b"".join(pieces[t] for t in talk.tolist()).decode("utf-8", "replace") for talk in talks]
    meet = [p for p in prompts if any(p in text for text in texts)]
    words = f": {'; '.join(meet)}" if meet else ""
    return f"{len(meet)} of {len(prompts)} prompts stand in the {len(texts)} conversations of {path.name}{words}"
