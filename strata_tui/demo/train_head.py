"""The recipe that trains the demo model's NextN head, which then lies beside it as package data.

    python -m strata_tui.demo.train_head --minutes 9

The model (frozen) writes conversations by itself; a block that begins as a copy of its last layer learns to say
the model's next final state from the last one (head_model.py). No other data is used. With a seed, the text is
the same each time on the same machine, and the training is, but for the time limits.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
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

from .head_data import DATA, write_head
from .head_model import STATE, TOKEN, HeadTrainer, Shape
from .head_text import Tokens, Writer, answers, final_states, until
from .upcycle import from_neox, to_neox

Floats = NDArray[np.float32]

LICENCE = "Apache-2.0, as SmolLM2-135M-Instruct, whose weights it begins with and whose text it learns from"
_RATE, _WARM_UP, _FEATURE, _HELD_BACK = 8e-4, 100, 0.02, 0.02
_WRITING = 0.45  # share of the time
_USERS = 0.1  # what a token of the user's counts beside one of the assistant's
_OWN = 0.3  # share of steps in which the block reads its own states, as it does behind the first draft


@dataclass(slots=True)
class Text:
    """Conversations with the model's states. `states` one array for all, rows as in `ids`."""

    ids: NDArray[np.int32]  # (talks, length)
    states: NDArray[np.float16]  # (talks, length, width)
    weights: Floats  # (talks, length): what saying the next token counts

    def split(self) -> tuple[Text, Text]:
        """(to train on, held back)."""
        n = max(1, round(len(self.ids) * _HELD_BACK))
        return self._part(slice(n, None)), self._part(slice(n))

    def _part(self, talks: slice) -> Text:
        return Text(self.ids[talks], self.states[talks], self.weights[talks])

    def pieces(self, rng: np.random.Generator, shape: Shape) -> tuple[Any, Any, Any, Any]:
        """A batch: ids, states one position earlier, states, weights; (tokens,), twice (tokens, width), (tokens,)."""
        talks = rng.integers(len(self.ids), size=shape.texts)
        starts = rng.integers(self.ids.shape[1] - shape.length + 1, size=shape.texts)
        ids = np.empty((shape.texts, shape.length), np.int32)
        weights = np.empty(ids.shape, np.float32)
        truth = np.empty((*ids.shape, shape.width), np.float32)
        before = np.zeros_like(truth)
        for i, (talk, start) in enumerate(zip(talks, starts, strict=True)):
            piece = slice(start, start + shape.length)
            ids[i], weights[i], truth[i] = self.ids[talk, piece], self.weights[talk, piece], self.states[talk, piece]
            before[i, 1:] = truth[i, :-1]
            if start:
                before[i, 0] = self.states[talk, start - 1]
        return ids.ravel(), before.reshape(-1, shape.width), truth.reshape(-1, shape.width), weights.ravel()


def next_weights(answers: NDArray[np.bool_]) -> Floats:
    """1 where the next token is the assistant's, _USERS elsewhere: nobody drafts what a user says."""
    following = np.concatenate([answers[:, 1:], answers[:, -1:]], 1)
    return np.where(following, 1.0, _USERS).astype(np.float32)


def first_weights(source: Path) -> tuple[dict[str, Floats], Floats, Shape]:
    """The block before training (a copy of the last layer), the embeddings, and the shape (one text of one token)."""
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
        neurons=int(value("feed_forward_length")),
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
    made["attn_q.weight"] = to_neox(made["attn_q.weight"], shape.heads)
    made["attn_k.weight"] = to_neox(made["attn_k.weight"], shape.kv_heads)
    return made, embeddings, shape


def as_stored(weights: dict[str, Floats], shape: Shape) -> dict[str, Floats]:
    """Trained weights under the names and in the order of head_data.py."""
    kept = {name: values for name, values in weights.items() if name not in (TOKEN, STATE)}
    kept["nextn.eh_proj.weight"] = np.hstack([weights[TOKEN], weights[STATE]])
    kept["attn_q.weight"] = from_neox(kept["attn_q.weight"], shape.heads)
    kept["attn_k.weight"] = from_neox(kept["attn_k.weight"], shape.kv_heads)
    return {name: np.ascontiguousarray(values) for name, values in kept.items()}


def own_states(states: Floats, before: Floats, shape: Shape) -> Floats:
    """What the block reads when it is fed its own states: these, one position later; a text's first row is true."""
    shifted = states.reshape(shape.texts, shape.length, -1)
    first = before.reshape(shifted.shape)[:, :1]
    fed: Floats = np.concatenate([first, shifted[:, :-1]], axis=1).reshape(before.shape).astype(np.float32)
    return fed


def train(trainer: HeadTrainer, text: Text, seconds: float, steps: int, seed: int, say: Any = print) -> int:
    """Until the time or the steps are used up; the rate falls to 0 with them. Returns the steps."""
    rng = np.random.default_rng(seed)
    begun, done = time.monotonic(), 0
    with ThreadPoolExecutor(1) as beside:  # the next batch is put together while the device computes
        batch = beside.submit(text.pieces, rng, trainer.shape)
        own = np.random.default_rng(seed + 1)
        while True:
            used = max((time.monotonic() - begun) / seconds, done / steps)
            if used >= 1:
                return done
            ids, before, truth, weights = batch.result()
            batch = beside.submit(text.pieces, rng, trainer.shape)
            right = trainer.forward(ids, before, truth, weights)
            if used > 0.1 and own.random() < _OWN:
                trainer.forward(ids, own_states(trainer.states(), before, trainer.shape), truth, weights)
            trainer.step(_RATE * min(1.0, (done + 1) / _WARM_UP) * 0.5 * (1 + math.cos(math.pi * used)))
            done += 1
            if done % 100 == 0:
                say(f"step {done}, {used:.0%}: the first draft is right in {right:.1%} of a batch")


def measure(trainer: HeadTrainer, text: Text, batches: int, seed: int) -> list[float]:
    """How often the likeliest token is the model's in its answers, for the first draft, the second, ..., 4 in all."""
    rng = np.random.default_rng(seed)
    sums = np.zeros(4)
    for _ in range(batches):
        ids, before, truth, weights = text.pieces(rng, trainer.shape)
        for i in range(len(sums)):
            sums[i] += trainer.forward(ids, before, truth, weights)
            before = own_states(trainer.states(), before, trainer.shape)
    return [float(x) for x in sums / batches]


def load_text(path: Path) -> Tokens:
    """(talks, length)."""
    with np.load(path, allow_pickle=False) as data:
        found: Tokens = data["tokens"]
    return found


def write(source: Path, devices: Sequence[str], args: argparse.Namespace) -> tuple[Any, Any]:
    """Conversations and their states, of several writers beside each other: while one computes, others choose."""
    at_once = [args.talks // args.writers] * args.writers
    threads = max(1, args.threads // args.writers)
    enough = until(args.minutes * 60 * _WRITING, args.tokens // args.writers)

    def written(i: int) -> list[tuple[Any, Any]]:
        seed = args.seed * args.writers + i
        device = devices[i % len(devices)]
        writer = Writer(source, device, talks=at_once[i], length=args.length, threads=threads, seed=seed)
        try:
            return list(writer.write(enough))
        finally:
            writer.close()

    with ThreadPoolExecutor(args.writers) as pool:
        parts = [part for parts in pool.map(written, range(args.writers)) for part in parts]
    tokens, states = (np.concatenate(x) for x in zip(*parts, strict=True))
    return tokens, states


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--minutes", type=float, default=9.0, help="in all; nearly half of it for writing (default: 9)")
    p.add_argument("--out", type=Path, default=Path(str(files(__package__) / DATA)))
    p.add_argument("--text", type=Path, help="train on this text (from --keep-text) instead of writing one")
    p.add_argument("--keep-text", type=Path, help="where the text goes, 2 bytes a token")
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
    p.add_argument("--batch", type=int, default=32, help="pieces of 256 tokens in a training step")
    p.add_argument("--piece", type=int, default=256)
    p.add_argument("--steps", type=int, default=1_000_000, help="most training steps")
    p.add_argument("--measure", type=int, default=8, help="batches of text held back to measure on")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args(argv)

    from ..engine import native
    from .build import ensure_demo_model
    from .source import source_model

    begun = time.monotonic()
    devices = [native.pick_device(n) for n in args.gpu or [None]]
    device, source, demo = devices[0], source_model(), ensure_demo_model()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)

    if args.text:
        tokens = load_text(args.text)
        states = np.stack(final_states(demo, device, list(tokens), args.threads))
    else:
        tokens, states = write(source, devices, args)
    say(f"{len(tokens)} conversations, {tokens.size:,} tokens, and their states, on {', '.join(devices)}")
    if len(tokens) < 2:
        print("Too little text: give it more --minutes, or shorter conversations.", file=sys.stderr)
        return 1
    if args.keep_text:
        np.savez_compressed(args.keep_text, tokens=tokens)
    spoken = answers(tokens, source)
    say(f"{spoken.mean():.0%} of the tokens are the assistant's")
    text = Text(tokens.astype(np.int32), states, next_weights(spoken))
    training, held_back = text.split()
    weights, embeddings, shape = first_weights(source)
    shape = replace(shape, length=args.piece, texts=args.batch)
    trainer = HeadTrainer(shape, weights, embeddings, device, args.threads, _FEATURE)
    left = args.minutes * 60 - (time.monotonic() - begun) - 5
    steps = train(trainer, training, max(1.0, left), args.steps, args.seed, say)
    reached = measure(trainer, held_back, args.measure, args.seed + 1)
    say(f"{steps} steps; right on held back text: " + ", ".join(f"{x:.1%}" for x in reached))
    about = {
        "source": source.name,
        "data": "conversations written by the source model itself, from its template's opening (head_text.py)",
        "licence": LICENCE,
        "seed": args.seed,
        "tokens": tokens.size,
        "steps": steps,
        "tokens_a_step": shape.tokens,
        "right_on_held_back_text": reached,
        "device": device,
    }
    write_head(args.out, as_stored(trainer.weights(), shape), about)
    trainer.close()
    say(f"{args.out}: {args.out.stat().st_size:,} bytes; {json.dumps(about)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
