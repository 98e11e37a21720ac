"""The recipe that fitted the demo model's routers, which lie beside it as package data.

`python -m strata_tui.demo.routers` fits them again (about 20 seconds on two cores).

A router that looks at single tokens jumps from one to the next. Real models' experts have topics
beside tokens, which is what a cache of experts lives on. So, per layer, the hidden states at the
feed-forward block's input are taken from a small corpus, freed of their mean, smoothed along the text,
and put into as many clusters as there are experts. A router row is the direction of a cluster's
centre, at right angles to the mean state, so that no expert is favoured by what all tokens share.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .router_data import DATA
from .upcycle import EXPERTS

Floats = NDArray[np.float32]

SMOOTHING = 0.9  # weight of the past in the running mean of hidden states
_SKIPPED = 12  # first tokens of a text: outsized first states, and a running mean that knows too little
_ROUNDS = 25
_SEED = 0


def corpus_chats() -> list[str]:
    """The corpus as chats in the source model's format."""
    text = (files(__package__) / "corpus.txt").read_text(encoding="utf-8")
    chats = []
    for section in text.split("%%\n"):
        question, _, answer = section.partition("\n")
        chats.append(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{answer.strip()}<|im_end|>\n")
    return chats


def hidden_states(source: Path, chats: Sequence[str]) -> list[list[Floats]]:
    """For each layer, for each chat, what enters the feed-forward block: (tokens, embedding length)."""
    from .taps import TappedModel

    with TappedModel(source, r"ffn_norm-\d+") as model:
        for chat in chats:
            model.reset()
            model.decode(model.tokenize(chat))
        return [model.taps[f"ffn_norm-{layer}"] for layer in range(len(model.taps))]


def fit_router(texts: Sequence[Floats], seed: int) -> Floats:
    """One layer's router, (EXPERTS, embedding length), with logits of unit deviation on `texts`."""
    states = np.concatenate([text[4:] for text in texts])
    mean = states.mean(0)
    points = np.concatenate([_running_mean(text[4:] - mean)[_SKIPPED - 4 :] for text in texts])
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    rows = cluster_directions(points, mean, seed)
    router: Floats = (rows / (states @ rows.T).std()).astype(np.float32)
    return router


def cluster_directions(points: Floats, mean: Floats, seed: int) -> Floats:
    """Of the centres of as many clusters as there are experts, at right angles to `mean`: (EXPERTS, width)."""
    centres = _k_means(points, EXPERTS, np.random.default_rng((_SEED, seed)))
    rows: Floats = centres - centres.mean(0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    common = mean / np.linalg.norm(mean)
    rows -= np.outer(rows @ common, common)
    return rows


def _running_mean(states: Floats) -> Floats:
    smooth = states.copy()
    for i in range(1, len(smooth)):
        smooth[i] = SMOOTHING * smooth[i - 1] + (1 - SMOOTHING) * states[i]
    return smooth


def _k_means(points: Floats, k: int, rng: np.random.Generator) -> Floats:
    """k-means++ and Lloyd's rounds."""
    centres: Floats = points[rng.integers(len(points))][None]
    nearest = ((points - centres[0]) ** 2).sum(1)
    while len(centres) < k:
        chosen = points[rng.choice(len(points), p=nearest / nearest.sum())]
        centres = np.vstack([centres, chosen])
        nearest = np.minimum(nearest, ((points - chosen) ** 2).sum(1))
    for _ in range(_ROUNDS):
        owner = ((centres**2).sum(1) - 2 * points @ centres.T).argmin(1)
        for j in range(k):
            members = points[owner == j]
            if len(members):
                centres[j] = members.mean(0)
    return centres


def main() -> int:
    from .source import source_model

    layers = hidden_states(source_model(), corpus_chats())
    routers = np.stack([fit_router(texts, layer) for layer, texts in enumerate(layers)])
    path = Path(str(files(__package__) / DATA))
    np.savez_compressed(path, routers=routers.astype(np.float16))
    print(f"{path}: {routers.shape[0]} layers, {routers.shape[1]} experts, {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
