"""How tests read through a model: the same tokens, the same rows of logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from strata_tui.engine import gguf_info
from strata_tui.engine.llama import Logits, LowLevel


def tokens_of(model: LowLevel, n: int, seed: int) -> list[int]:
    """`n` random tokens."""
    rng = np.random.default_rng(seed)
    return [int(t) for t in rng.integers(3, model.model.n_vocab, n)]


def read_and_write(model: LowLevel, prompt: int, written: int) -> Logits:
    """Logits of every prompt token and of greedy decoding after it: (prompt + written, n_vocab)."""
    model.clear()
    rows = [model.decode(tokens_of(model, prompt, prompt), all_logits=True)]
    for _ in range(written):
        rows.append(model.decode([int(rows[-1][-1].argmax())])[None])
    return np.concatenate(rows)


def experts_of(path: Path) -> int:
    """Experts of all layers."""
    return sum(n for _, n, _, _ in gguf_info.expert_groups(gguf_info.read_info(path)))
