"""The recipe that trains the demo model's NextN head, which then lies beside it as package data.

    python -m strata_tui.demo.train_head --minutes 9

The model (frozen) writes conversations by itself; a block that begins as a copy of its last layer learns to say
the model's next final state from the last one (head_model.py). No other data is used. With a seed, the text is
the same each time on the same machine, and the training is, but for the time limits.

With two devices one can write while the other one trains on what there is so far:

    python -m strata_tui.demo.train_head --gpu 1 --minutes 20 --text FOLDER --only write &
    python -m strata_tui.demo.train_head --gpu 0 --minutes 20 --text FOLDER --only train
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from numpy.typing import NDArray

from .head_data import DATA, ROUTER, ROUTER_BIAS, as_shipped, write_head
from .head_model import STATE, TOKEN, Experts, HeadTrainer, Shape
from .head_parts import Parts, Tokens, keep_part
from .head_text import Markers, Writer, answers, until
from .routers import cluster_directions
from .upcycle import EXPERT_NEURONS, EXPERTS, USED, from_neox, to_neox

Floats = NDArray[np.float32]

LICENCE = "Apache-2.0, as SmolLM2-135M-Instruct, whose weights it begins with and whose text it learns from"
_RATE, _WARM_UP, _FEATURE, _HELD_BACK = 8e-3, 100, 0.02, 0.02
_WARMTH = 0.5  # temperature at which the model's distribution is learnt
_WRITING = 0.45  # share of the time
_USERS = 0.1  # what a token of the user's counts beside one of the assistant's
_OWN = 0.15  # share of steps in which the block reads its own states, as it does behind the first draft
_SETTLED = 0.1  # share of the training after which it does so, and the router is fitted once more
_BALANCING = 300  # rounds in which the experts' loads are evened out


@dataclass(frozen=True, slots=True)
class Plan:
    """Of a training. `seconds`, `steps`: at most."""

    seconds: float
    steps: int
    rate: float
    seed: int


def next_weights(answers: NDArray[np.bool_]) -> Floats:
    """1 where the next token is the assistant's, _USERS elsewhere: nobody drafts what a user says."""
    following = np.concatenate([answers[:, 1:], answers[:, -1:]], 1)
    return np.where(following, 1.0, _USERS).astype(np.float32)


def first_weights(source: Path, distinct: int) -> tuple[dict[str, Floats], Floats, Shape]:
    """The block before training (a copy of the last layer, whose routed part begins as each of the `distinct` experts),
    the embeddings, and the shape (one text of one token).
    """
    reader = GGUFReader(source)
    tensors = {t.name: t for t in reader.tensors}

    def value(key: str) -> Any:
        return reader.fields[f"llama.{key}"].contents()

    def weights(name: str) -> Floats:
        t = tensors[name]
        found: Floats = dequantize(t.data, t.tensor_type).astype(np.float32)
        return found

    embeddings = weights("token_embd.weight")
    head = "output.weight" if "output.weight" in tensors else "token_embd.weight"
    if head != "token_embd.weight":
        raise ValueError("the source model's output matrix is not its embeddings")
    shape = Shape(
        width=int(value("embedding_length")),
        heads=int(value("attention.head_count")),
        kv_heads=int(value("attention.head_count_kv")),
        experts=Experts(EXPERTS, USED, distinct, EXPERT_NEURONS, int(value("feed_forward_length")) - EXPERT_NEURONS),
        vocab=len(embeddings),
        rope_base=float(value("rope.freq_base")),
        epsilon=float(value("attention.layer_norm_rms_epsilon")),
        length=1,
        texts=1,
    )
    block = f"blk.{int(value('block_count')) - 1}."
    d = shape.width
    made = {
        TOKEN: np.eye(d, dtype=np.float32),
        STATE: np.eye(d, dtype=np.float32),
        "nextn.enorm.weight": np.ones(d, np.float32),
        "nextn.hnorm.weight": np.ones(d, np.float32),
        "nextn.shared_head_norm.weight": weights("output_norm.weight"),
    }
    for name in shape.parameters():
        if name not in made:
            made[name] = weights(block + name)
    for name, axis in (("ffn_gate.weight", 0), ("ffn_up.weight", 0), ("ffn_down.weight", 1)):
        shared, routed = np.split(made[name], [shape.experts.shared], axis)
        made[name] = np.concatenate([shared, *[routed] * distinct], axis)
    made["attn_q.weight"] = to_neox(made["attn_q.weight"], shape.heads)
    made["attn_k.weight"] = to_neox(made["attn_k.weight"], shape.kv_heads)
    return made, embeddings, shape


def as_stored(weights: dict[str, Floats], routing: tuple[Floats, Floats], shape: Shape) -> dict[str, Floats]:
    """Trained weights under the names and in the order of head_data.py."""
    kept = {name: values for name, values in weights.items() if name not in (TOKEN, STATE)}
    kept["nextn.eh_proj.weight"] = np.hstack([weights[TOKEN], weights[STATE]])
    kept["attn_q.weight"] = from_neox(kept["attn_q.weight"], shape.heads)
    kept["attn_k.weight"] = from_neox(kept["attn_k.weight"], shape.kv_heads)
    kept[ROUTER], kept[ROUTER_BIAS] = routing
    return {name: np.ascontiguousarray(values) for name, values in kept.items()}


def fit_router(states: Floats, seed: int) -> tuple[Floats, Floats]:
    """Experts by what their router reads, (tokens, width): (EXPERTS, width), the directions of that many clusters, and
    what is added to each one's probability so that all are used about equally often.
    """
    mean = states.mean(0)
    points = states - mean
    rows = cluster_directions(points / np.linalg.norm(points, axis=1, keepdims=True), mean, seed)
    router = rows / (states @ rows.T).std()
    probabilities = 1 / (1 + np.exp(-(states @ router.T)))
    bias = np.zeros(EXPERTS, np.float32)
    for i in range(_BALANCING):
        used = np.argpartition(-(probabilities + bias), USED - 1, axis=1)[:, :USED]
        share = np.bincount(used.ravel(), minlength=EXPERTS) / used.size * EXPERTS
        bias += np.float32(0.02 * (1 - i / _BALANCING)) * np.sign(1 - share).astype(np.float32)
    return router.astype(np.float32), bias


def train(trainer: HeadTrainer, texts: Parts, plan: Plan, say: Any = print) -> tuple[int, tuple[Floats, Floats]]:
    """Until the time or the steps are used up; the rate falls to 0 with them. Returns the steps, and the router, which
    is fitted at the beginning and once more when the states have found their places.
    """
    rng, own = np.random.default_rng(plan.seed), np.random.default_rng(plan.seed + 1)
    routing = fit_router(_read_by_router(trainer, texts, rng), plan.seed)
    trainer.route(*routing)
    begun, done, fitted, right = time.monotonic(), 0, False, []
    with ThreadPoolExecutor(1) as beside:  # the next batch is put together while the device computes
        batch = beside.submit(texts.batch, rng, trainer.shape)
        while True:
            used = max((time.monotonic() - begun) / plan.seconds, done / plan.steps)
            if used >= 1:
                return done, routing
            if used > _SETTLED and not fitted:
                fitted, routing = True, fit_router(trainer.routed(), plan.seed)
                trainer.route(*routing)
            ids, states, weights = batch.result()
            if done % 500 == 0:
                texts.look()
            batch = beside.submit(texts.batch, rng, trainer.shape)
            right.append(trainer.forward(ids, states, weights))
            if used > _SETTLED and own.random() < _OWN:
                trainer.follow()
            trainer.step(plan.rate * min(1.0, (done + 1) / _WARM_UP) * 0.5 * (1 + math.cos(math.pi * used)))
            done += 1
            if done % 500 == 0:
                took = (time.monotonic() - begun) / done
                say(f"step {done}, {used:.0%}, {took * 1e3:.0f} ms each: the first draft is right in "
                    f"{np.mean(right):.1%}")  # fmt: skip
                right.clear()


def _read_by_router(trainer: HeadTrainer, texts: Parts, rng: np.random.Generator) -> Floats:
    trainer.forward(*texts.batch(rng, trainer.shape))
    return trainer.routed()


def measure(trainer: HeadTrainer, texts: Parts, batches: int, seed: int) -> list[float]:
    """How often the likeliest token is the model's in its answers, for the first draft, the second, ..., 4 in all."""
    rng = np.random.default_rng(seed)
    sums = np.zeros(4)
    for _ in range(batches):
        sums += [trainer.forward(*texts.batch(rng, trainer.shape, held_back=True)), *(trainer.follow() for _ in "123")]
    return [float(x) for x in sums / batches]


def load_text(path: Path) -> Tokens:
    """(talks, length)."""
    with np.load(path, allow_pickle=False) as data:
        found: Tokens = data["tokens"]
    return found


def write(source: Path, devices: Sequence[str], folder: Path, args: argparse.Namespace, seconds: float) -> None:
    """Conversations and their states, of several writers beside each other: while one computes, others choose."""
    threads = max(1, args.threads // args.writers)
    enough = until(seconds, args.tokens // args.writers)

    def written(i: int) -> None:
        seed = args.seed * args.writers + i
        device = devices[i % len(devices)]
        writer = Writer(
            source, device, talks=args.talks // args.writers, length=args.length, threads=threads, seed=seed
        )
        try:
            for n, (tokens, states) in enumerate(writer.write(enough)):
                keep_part(folder, f"{seed}-{n}", tokens, states)
        finally:
            writer.close()

    with ThreadPoolExecutor(args.writers) as pool:
        list(pool.map(written, range(args.writers)))


def as_trained(stored: dict[str, Floats], shape: Shape) -> dict[str, Floats]:
    """The inverse of `as_stored`, without the router."""
    weights = {name: values for name, values in stored.items() if name not in (ROUTER, ROUTER_BIAS)}
    both = weights.pop("nextn.eh_proj.weight")
    weights[TOKEN], weights[STATE] = both[:, : shape.width], both[:, shape.width :]
    weights["attn_q.weight"] = to_neox(weights["attn_q.weight"], shape.heads)
    weights["attn_k.weight"] = to_neox(weights["attn_k.weight"], shape.kv_heads)
    return weights


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=float, default=9.0, help="in all; nearly half of it for writing (default: 9)")
    p.add_argument("--out", type=Path, default=Path(str(files(__package__) / DATA)))
    p.add_argument("--text", type=Path, help="folder for the text and its states (default: one that is deleted)")
    p.add_argument("--only", choices=("write", "train"), help="with --text: that part for all of the time")
    p.add_argument("--keep-text", type=Path, help="where the text goes as well, 2 bytes a token")
    p.add_argument(
        "--gpu",
        type=int,
        nargs="+",
        metavar="N",
        help="CUDA devices, the first of which trains (default: the one with most free memory; -1: CPU)",
    )
    p.add_argument("--talks", type=int, default=1024, help="conversations written at once")
    p.add_argument("--writers", type=int, default=4, help="that share them, at most 256 each (default: 4)")
    p.add_argument("--length", type=int, default=768, help="tokens of a conversation")
    p.add_argument("--tokens", type=int, default=8_000_000, help="most tokens to write")
    p.add_argument("--least", type=int, default=1, help="tokens that training waits for, with --only train")
    p.add_argument("--batch", type=int, default=32, help="pieces of 256 tokens in a training step")
    p.add_argument("--piece", type=int, default=256)
    p.add_argument("--experts", type=int, default=8, help="different ones among the head's 24 (default: 8)")
    p.add_argument("--rate", type=float, default=_RATE, help=f"of learning (default: {_RATE:g})")
    p.add_argument("--warmth", type=float, default=_WARMTH, help=f"of the model learnt from (default: {_WARMTH:g})")
    p.add_argument("--steps", type=int, default=1_000_000, help="most training steps")
    p.add_argument("--measure", type=int, default=16, help="batches of text held back to measure on")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--seed", type=int, default=0)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    p = _parser()
    args = p.parse_args(argv)
    if args.only and not args.text:
        p.error("--only needs --text FOLDER, where the other part looks too")
    with contextlib.ExitStack() as stack:
        folder = args.text or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="strata-head-")))
        folder.mkdir(parents=True, exist_ok=True)
        return _run(args, folder)


def _run(args: argparse.Namespace, folder: Path) -> int:
    from ..engine import native
    from .source import source_model

    begun = time.monotonic()
    devices = [native.pick_device(n) for n in args.gpu or [None]]
    device, source = devices[0], source_model()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)

    markers = Markers.of(source)
    texts = Parts(folder, lambda tokens: next_weights(answers(tokens, markers)), _HELD_BACK)
    if args.only != "train":
        write(source, devices, folder, args, args.minutes * 60 * (1.0 if args.only else _WRITING))
    while (
        (tokens := texts.look()) < args.least and args.only == "train" and time.monotonic() - begun < args.minutes * 60
    ):
        time.sleep(1)
    if not tokens:
        print("Too little text: give it more --minutes, or shorter conversations.", file=sys.stderr)
        return 1
    say(f"{tokens:,} tokens, and their states, on {', '.join(devices)}")
    if args.only != "write":
        _train(args, texts, source, device, args.minutes * 60 - (time.monotonic() - begun), say)
    texts.look()
    if args.keep_text:
        np.savez_compressed(args.keep_text, tokens=texts.tokens())
    return 0


def _train(args: argparse.Namespace, texts: Parts, source: Path, device: str, seconds: float, say: Any) -> None:
    weights, embeddings, shape = first_weights(source, args.experts)
    shape = replace(shape, length=args.piece, texts=args.batch)
    trainer = HeadTrainer(shape, weights, embeddings, device, args.threads, feature=_FEATURE, warmth=args.warmth)
    try:
        plan = Plan(max(1.0, seconds - 5), args.steps, args.rate, args.seed)
        steps, routing = train(trainer, texts, plan, say)
        reached = measure(trainer, texts, args.measure, args.seed + 1)
        stored = as_stored(trainer.weights(), routing, shape)
        trainer.load(as_trained(as_shipped(stored), shape))
        shipped = measure(trainer, texts, args.measure, args.seed + 1)
    finally:
        trainer.close()
    for name, rates in (("as trained", reached), ("as shipped, quantized", shipped)):
        say(f"{steps} steps; right on held back text, {name}: " + ", ".join(f"{x:.1%}" for x in rates))
    about = {
        "source": source.name,
        "data": "conversations written by the source model itself, from its template's opening (head_text.py)",
        "licence": LICENCE,
        "seed": args.seed,
        "tokens": texts.look(),
        "steps": steps,
        "tokens_a_step": shape.tokens,
        "experts": args.experts,
        "rate": args.rate,
        "warmth": args.warmth,
        "right_on_held_back_text": shipped,
        "device": device,
    }
    write_head(args.out, stored, about)
    say(f"{args.out}: {args.out.stat().st_size:,} bytes; {json.dumps(about)}")


if __name__ == "__main__":
    sys.exit(main())
