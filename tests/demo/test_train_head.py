"""The recipe of the NextN head: the block against a reference in numpy, its gradients, and all of it at a tiny size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from strata_tui.demo import build, train_head
from strata_tui.demo.head_data import about_head, read_head
from strata_tui.demo.head_model import STATE, TOKEN, HeadTrainer, Shape
from strata_tui.demo.upcycle import from_neox, to_neox
from strata_tui.engine.gguf_info import read_info
from strata_tui.engine.speculate_heads import count_heads

SHAPE = Shape(width=64, heads=4, kv_heads=2, neurons=96, vocab=300, rope_base=1e4, epsilon=1e-5, length=16, texts=3)
Weights = dict[str, NDArray[Any]]


def _weights(rng: np.random.Generator) -> Weights:
    return {
        name: (rng.standard_normal(size) / np.sqrt(size[-1]) if len(size) > 1 else np.ones(size)).astype(np.float32)
        for name, size in SHAPE.parameters().items()
    }


def _batch(rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    states = rng.standard_normal((2, SHAPE.tokens, SHAPE.width)).astype(np.float32)
    return rng.integers(0, SHAPE.vocab, SHAPE.tokens).astype(np.int32), states[0], states[1]


def _reference(w: Weights, embeddings: NDArray[Any], ids: NDArray[Any], before: NDArray[Any]) -> NDArray[Any]:
    texts, length, size = SHAPE.texts, SHAPE.length, SHAPE.width // SHAPE.heads

    def norm(x: NDArray[Any], name: str) -> NDArray[Any]:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + SHAPE.epsilon) * w[name]

    def heads(x: NDArray[Any], name: str, n: int) -> NDArray[Any]:
        return (x @ w[name].T).reshape(texts, length, n, size)

    angle = np.arange(length)[:, None] * SHAPE.rope_base ** (-np.arange(size // 2) / (size // 2))
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]

    def rope(x: NDArray[Any]) -> NDArray[Any]:
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    x = norm(embeddings[ids], "nextn.enorm.weight") @ w[TOKEN].T + norm(before, "nextn.hnorm.weight") @ w[STATE].T
    a = norm(x, "attn_norm.weight")
    q, k = rope(heads(a, "attn_q.weight", SHAPE.heads)), rope(heads(a, "attn_k.weight", SHAPE.kv_heads))
    k, v = (np.repeat(y, SHAPE.heads // SHAPE.kv_heads, 2) for y in (k, heads(a, "attn_v.weight", SHAPE.kv_heads)))
    score = np.einsum("blhd,bmhd->bhlm", q, k) / np.sqrt(size) + np.triu(np.full((length, length), -np.inf), 1)
    p = np.exp(score - score.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    x = x + np.einsum("bhlm,bmhd->blhd", p, v).reshape(x.shape) @ w["attn_output.weight"].T
    y = norm(x, "ffn_norm.weight")
    gate = y @ w["ffn_gate.weight"].T
    x = x + (gate / (1 + np.exp(-gate)) * (y @ w["ffn_up.weight"].T)) @ w["ffn_down.weight"].T
    return norm(x, "nextn.shared_head_norm.weight")


def _loss(w: Weights, embeddings: NDArray[Any], ids: NDArray[Any], before: NDArray[Any], truth: NDArray[Any]) -> float:
    """Cross entropy of the block's distribution against the model's."""
    ours, theirs = _reference(w, embeddings, ids, before) @ embeddings.T, truth @ embeddings.T
    p = np.exp(theirs - theirs.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    ours -= ours.max(-1, keepdims=True)
    return float(-(p * (ours - np.log(np.exp(ours).sum(-1, keepdims=True)))).sum(-1).mean())


def test_forward_gradient_and_learning() -> None:
    rng = np.random.default_rng(0)
    w = _weights(rng)
    embeddings = rng.standard_normal((SHAPE.vocab, SHAPE.width)).astype(np.float16).astype(np.float64)
    batch = _batch(rng)
    trainer = HeadTrainer(SHAPE, w, embeddings, "CPU", 1, 0.0)
    try:
        trainer.forward(*batch)
        states = trainer.states()
        exact: Weights = {name: value.astype(np.float64) for name, value in w.items()}
        assert np.abs(states - _reference(exact, embeddings, *batch[:2])).max() < 1e-4
        trainer.step(1e-4, decay=0.0)  # AdamW's first step moves each weight against the sign of its gradient
        moved = trainer.weights()
        for name, values in exact.items():
            for _ in range(3):
                at = tuple(int(rng.integers(n)) for n in values.shape)
                slope = 0.0
                for sign in (1, -1):
                    values[at] += sign * 1e-4
                    slope += sign * _loss(exact, embeddings, *batch)
                    values[at] -= sign * 1e-4
                if abs(slope) > 2e-9:
                    assert np.sign(moved[name][at] - w[name][at]) == -np.sign(slope), (name, at)
        first = _loss(exact, embeddings, *batch)
        for _ in range(60):
            trainer.forward(*batch)
            trainer.step(3e-3)
        assert trainer.forward(*batch) > 0.7
        assert _loss({n: v.astype(np.float64) for n, v in trainer.weights().items()}, embeddings, *batch) < first / 4
    finally:
        trainer.close()


def test_own_states_are_one_position_later() -> None:
    states = np.arange(SHAPE.tokens * SHAPE.width, dtype=np.float32).reshape(SHAPE.tokens, SHAPE.width)
    fed = train_head.own_states(states, -states, SHAPE)
    for text in range(SHAPE.texts):
        start = text * SHAPE.length
        assert (fed[start] == -states[start]).all()
        assert (fed[start + 1 : start + SHAPE.length] == states[start : start + SHAPE.length - 1]).all()


def test_the_answers_in_a_conversation(demo_model: Path) -> None:
    from strata_tui.demo.head_text import answers
    from strata_tui.engine.llama import Model

    said = [
        "<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\n",
        "Hello you.<|im_end|>",
        "\n<|im_start|>user\nBye.",
    ]
    model = Model.load(build.source_model())
    parts = [model.tokenize(text) for text in said]
    model.close()
    found = answers(np.array([sum(parts, [])]), build.source_model())
    assert found.tolist() == [[False] * len(parts[0]) + [True] * len(parts[1]) + [False] * len(parts[2])]
    assert (train_head.next_weights(found) == 1).sum() == len(parts[1])


def test_a_position_of_weight_0_teaches_nothing() -> None:
    rng = np.random.default_rng(1)
    w, (ids, before, truth) = _weights(rng), _batch(rng)
    weight = np.where(np.arange(SHAPE.tokens) % 5 == 0, 0, 1).astype(np.float32)
    other = np.where(weight[:, None] > 0, truth, rng.standard_normal(truth.shape)).astype(np.float32)
    embeddings = rng.standard_normal((SHAPE.vocab, SHAPE.width))
    moved = []
    for states in (truth, other):
        trainer = HeadTrainer(SHAPE, w, embeddings, "CPU", 1, 0.1)
        try:
            trainer.forward(ids, before, states, weight)
            trainer.step(1e-3)
            moved.append(trainer.weights()[TOKEN])
        finally:
            trainer.close()
    assert (moved[0] == moved[1]).all() and (moved[0] != w[TOKEN]).any()


def test_the_order_of_rows_can_be_undone() -> None:
    rows = np.arange(48 * 3).reshape(48, 3)
    assert (from_neox(to_neox(rows, 4), 4) == rows).all()
    assert (to_neox(rows, 4) != rows).any()


def test_the_whole_recipe_and_a_demo_model_with_its_head(
    demo_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from talk import GREEDY, talk

    from strata_tui.engine.modes import Drafting, Modes

    monkeypatch.setenv("STRATA_TUI_CACHE", str(demo_model.parent))
    out, kept = tmp_path / "head.npz", tmp_path / "text.npz"
    size = (
        "--talks 4 --writers 2 --length 48 --tokens 144 --batch 1 --piece 16 --steps 2 --measure 1 --threads 1".split()
    )
    assert train_head.main(["--gpu", "-1", "-1", "--out", str(out), "--keep-text", str(kept), *size]) == 0
    assert [len(talk) for talk in train_head.load_text(kept)] == [48] * 4
    raw = out.read_bytes()
    assert len(raw) < 8 << 20
    assert about_head(raw)["steps"] == 2

    made = tmp_path / "demo.gguf"
    build.write_demo_model(build.source_model(), made, build.load_routers(), None, read_head(raw))
    assert count_heads(read_info(made), 4) == (1, "")
    with talk(made, modes=Modes(draft=Drafting.TWO)) as session:
        drafts = session.ask("Name three colours.", sampling=GREEDY).done.stats.drafts
    assert drafts is not None and sum(drafts.offered) > 0
