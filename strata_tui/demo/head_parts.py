"""Conversations and the model's states on disk, part by part, as batches to train on.

A part is two files, its states (1.2 KB a token) and its tokens. The tokens are put in place last, so that whoever
reads beside a writer sees whole parts only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .head_model import Shape

Tokens = NDArray[np.uint16]
States = NDArray[np.float16]
Batch = tuple[NDArray[np.int32], NDArray[np.float16], NDArray[np.float32]]  # what HeadTrainer.forward takes

_TOKENS, _STATES = ".tokens.npy", ".states.npy"


def keep_part(folder: Path, name: str, tokens: Tokens, states: States) -> None:
    """`tokens`: (talks, length); `states`: (talks, length, width)."""
    np.save(folder / (name + _STATES), states)
    unfinished = folder / (name + ".unfinished.npy")
    np.save(unfinished, tokens)
    os.replace(unfinished, folder / (name + _TOKENS))


@dataclass(slots=True)
class _Part:
    ids: Tokens
    states: States  # mapped
    weights: NDArray[np.float32]  # what saying the next token counts
    held_back: int  # talks in front


class Parts:
    """All parts in a folder; `weigh` gives what each token of (talks, length) counts."""

    def __init__(self, folder: Path, weigh: Callable[[Tokens], NDArray[np.float32]], held_back: float) -> None:
        self._folder, self._weigh, self._held_back = folder, weigh, held_back
        self._parts: dict[str, _Part] = {}

    def look(self) -> int:
        """Takes in new parts; how many tokens there are."""
        for path in sorted(self._folder.glob("*" + _TOKENS)):
            if path.name not in self._parts:
                ids = np.load(path)
                states = np.load(path.with_name(path.name.replace(_TOKENS, _STATES)), mmap_mode="r")
                held = max(1, round(len(ids) * self._held_back))
                self._parts[path.name] = _Part(ids, states, self._weigh(ids), held)
        return sum(p.ids.size for p in self._parts.values())

    def tokens(self) -> Tokens:
        """All conversations, (talks, length)."""
        return np.concatenate([p.ids for p in self._parts.values()])

    def batch(self, rng: np.random.Generator, shape: Shape, *, held_back: bool = False) -> Batch:
        """Random pieces; those held back are of conversations that are never trained on."""
        ids = np.empty((shape.texts, shape.length), np.int32)
        weights = np.empty(ids.shape, np.float32)
        states = np.zeros((shape.texts, shape.length + 1, shape.width), np.float16)
        parts = list(self._parts.values())
        for i, which in enumerate(rng.integers(len(parts), size=shape.texts)):
            part = parts[which]
            talk = rng.integers(part.held_back) if held_back else rng.integers(part.held_back, len(part.ids))
            start = int(rng.integers(part.ids.shape[1] - shape.length + 1))
            piece = slice(start, start + shape.length)
            ids[i], weights[i] = part.ids[talk, piece], part.weights[talk, piece]
            first = max(0, start - 1)
            states[i, first - (start - 1) :] = part.states[talk, first : start + shape.length]
        return ids, states, weights
