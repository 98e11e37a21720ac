"""The recipe of the NextN head: the block against a reference in numpy, its gradients, and all of it at a tiny size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf.quants import dequantize
from numpy.typing import NDArray

from strata_tui.demo import build, train_head
from strata_tui.demo.head_data import ROUTER, ROUTER_BIAS, about_head, as_shipped, read_head, write_head
from strata_tui.demo.head_model import STATE, TOKEN, Experts, HeadTrainer, Shape
from strata_tui.demo.head_parts import Parts, keep_part
from strata_tui.demo.upcycle import from_neox, to_neox
from strata_tui.engine.gguf_info import read_info
from strata_tui.engine.speculate_heads import count_heads

EXPERTS = Experts(routed=6, used=2, distinct=3, neurons=16, shared=48)
SHAPE = Shape(
    width=64, heads=4, kv_heads=2, experts=EXPERTS, vocab=300, rope_base=1e4, epsilon=1e-5, length=16, texts=3
)
Weights = dict[str, NDArray[Any]]


def _weights(rng: np.random.Generator) -> Weights:
    return {
        name: (rng.standard_normal(size) / np.sqrt(size[-1]) if len(size) > 1 else np.ones(size)).astype(np.float32)
        for name, size in SHAPE.parameters().items()
    }


def _batch(rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    states = rng.standard_normal((SHAPE.texts, SHAPE.length + 1, SHAPE.width)).astype(np.float16)
    return rng.integers(0, SHAPE.vocab, (SHAPE.texts, SHAPE.length)).astype(np.int32), states


def _routing(rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    return rng.standard_normal((EXPERTS.routed, SHAPE.width)) / 8, rng.standard_normal(EXPERTS.routed) / 8


def _gates(y: NDArray[Any], router: NDArray[Any], bias: NDArray[Any]) -> NDArray[Any]:
    """(tokens, parts), token by token."""
    gates = np.zeros((len(y), EXPERTS.parts))
    gates[:, : EXPERTS.shared // EXPERTS.neurons] = 1
    for row, token in zip(gates, y, strict=True):
        p = 1 / (1 + np.exp(-(router @ token)))
        used = np.argsort(-(p + bias))[: EXPERTS.used]
        for i in used:
            row[EXPERTS.parts - EXPERTS.distinct + i % EXPERTS.distinct] += p[i] / p[used].sum()
    return gates


def _reference(
    w: Weights,
    embeddings: NDArray[Any],
    ids: NDArray[Any],
    before: NDArray[Any],
    gates: NDArray[Any] | tuple[NDArray[Any], NDArray[Any]],
) -> NDArray[Any]:
    """(texts, length, width). `gates`: of the experts' parts, or the routing from which they come."""
    ids, before = ids.ravel(), before.reshape(-1, SHAPE.width)
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
    parts = np.repeat(_gates(y, *gates) if isinstance(gates, tuple) else gates, EXPERTS.neurons, 1)
    x = x + (gate / (1 + np.exp(-gate)) * (y @ w["ffn_up.weight"].T) * parts) @ w["ffn_down.weight"].T
    return norm(x, "nextn.shared_head_norm.weight").reshape(texts, length, -1)


def _read_by_router(w: Weights, embeddings: NDArray[Any], ids: NDArray[Any], before: NDArray[Any]) -> NDArray[Any]:
    """What enters the feed-forward part, (tokens, width)."""
    silent = {**w, "ffn_down.weight": np.zeros_like(w["ffn_down.weight"])}
    silent["nextn.shared_head_norm.weight"] = w["ffn_norm.weight"]  # the same state, and the same norm
    return _reference(silent, embeddings, ids, before, np.zeros((ids.size, EXPERTS.parts))).reshape(ids.size, -1)


def _loss(
    w: Weights, embeddings: NDArray[Any], ids: NDArray[Any], states: NDArray[Any], gates: NDArray[Any], warmth: float
) -> float:
    """Cross entropy of the block's distribution against the model's."""
    ours = _reference(w, embeddings, ids, states[:, :-1], gates) @ embeddings.T
    theirs = states[:, 1:].astype(np.float64) @ embeddings.T / warmth
    p = np.exp(theirs - theirs.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    ours -= ours.max(-1, keepdims=True)
    return float(-(p * (ours - np.log(np.exp(ours).sum(-1, keepdims=True)))).sum(-1).mean())


@pytest.mark.parametrize("warmth", [1.0, 0.5])
def test_forward_gradient_and_learning(warmth: float) -> None:
    rng = np.random.default_rng(0)
    w = _weights(rng)
    embeddings = rng.standard_normal((SHAPE.vocab, SHAPE.width)).astype(np.float16).astype(np.float64)
    batch, routing = _batch(rng), _routing(rng)
    trainer = HeadTrainer(SHAPE, w, embeddings, "CPU", 1, warmth=warmth)
    try:
        trainer.route(*routing)
        trainer.forward(*batch)
        states = trainer.states()
        exact: Weights = {name: value.astype(np.float64) for name, value in w.items()}
        before = batch[1][:, :-1].astype(np.float64)
        assert np.abs(states - _reference(exact, embeddings, batch[0], before, routing)).max() < 1e-4
        read = _read_by_router(exact, embeddings, batch[0], before)
        assert np.abs(trainer.routed() - read).max() < 1e-4
        gates = _gates(read, *routing)
        trainer.step(1e-4, decay=0.0)  # AdamW's first step moves each weight against the sign of its gradient
        moved = trainer.weights()
        for name, values in exact.items():
            for _ in range(3):
                at = tuple(int(rng.integers(n)) for n in values.shape)
                slope = 0.0
                for sign in (1, -1):
                    values[at] += sign * 1e-4
                    slope += sign * _loss(exact, embeddings, *batch, gates, warmth)
                    values[at] -= sign * 1e-4
                if abs(slope) > 2e-9:
                    assert np.sign(moved[name][at] - w[name][at]) == -np.sign(slope), (name, at)
        first = _loss(exact, embeddings, *batch, gates, warmth)
        for _ in range(60):
            trainer.forward(*batch)
            trainer.step(3e-3)
        assert trainer.forward(*batch) > 0.7
        learnt: Weights = {n: v.astype(np.float64) for n, v in trainer.weights().items()}
        gates = _gates(_read_by_router(learnt, embeddings, batch[0], before), *routing)
        assert _loss(learnt, embeddings, *batch, gates, warmth) < first / 3
    finally:
        trainer.close()


def test_its_own_states_are_read_one_position_later() -> None:
    rng = np.random.default_rng(2)
    w, (ids, states), routing = _weights(rng), _batch(rng), _routing(rng)
    embeddings = rng.standard_normal((SHAPE.vocab, SHAPE.width)).astype(np.float16).astype(np.float64)
    trainer = HeadTrainer(SHAPE, w, embeddings, "CPU", 1)
    try:
        trainer.route(*routing)
        trainer.forward(ids, states)
        for _ in range(2):
            own = trainer.states()
            trainer.follow()
            before = np.concatenate([states[:, :1], own[:, :-1]], 1)
            assert np.abs(trainer.states() - _reference(w, embeddings, ids, before, routing)).max() < 2e-4
    finally:
        trainer.close()


def test_pieces_begin_one_state_earlier_and_held_back_talks_are_never_trained_on(tmp_path: Path) -> None:
    talks, length, width = 10, 24, 64
    ids = np.arange(talks * length, dtype=np.uint16).reshape(talks, length)
    states = np.repeat(ids[..., None], width, 2).astype(np.float16) + 1
    texts = Parts(tmp_path, lambda tokens: (tokens % 2).astype(np.float32), 0.2)
    assert texts.look() == 0
    keep_part(tmp_path, "a", ids, states)
    (tmp_path / "b.states.npy").write_bytes(b"half")  # of a part that is still written
    assert texts.look() == talks * length
    rng = np.random.default_rng(0)
    seen: dict[bool, set[int]] = {True: set(), False: set()}
    starts = set()
    for i in range(60):
        got, before, weights = texts.batch(rng, SHAPE, held_back=i % 2 == 0)
        assert (weights == got % 2).all()
        seen[i % 2 == 0].update((got // length).ravel().tolist())
        starts.update((got[:, 0] % length).tolist())
        for row, state in zip(got, before[..., 0], strict=True):
            assert (state[1:] == row + 1).all()
            assert state[0] == (row[0] if row[0] % length else 0)
    assert seen == {True: {0, 1}, False: set(range(2, 10))}
    assert starts == set(range(length - SHAPE.length + 1))
    keep_part(tmp_path, "c", ids[:4], states[:4])
    assert texts.look() == 14 * length and len(texts.tokens()) == 14


def test_a_fitted_router_uses_all_experts() -> None:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((5, 64))  # fewer topics than experts, of unlike sizes
    states = (centres[rng.choice(5, 3000, p=[0.6, 0.1, 0.1, 0.1, 0.1])] + 0.7 * rng.standard_normal((3000, 64))).astype(
        np.float32
    )
    router, bias = train_head.fit_router(states, 0)
    ranked = 1 / (1 + np.exp(-(states @ router.T))) + bias
    used = np.argsort(-ranked, axis=1)[:, : train_head.USED]
    loads = np.bincount(used.ravel(), minlength=train_head.EXPERTS) / used.size * train_head.EXPERTS
    assert loads.min() > 0.5 and loads.max() < 2


def test_what_is_stored_can_be_trained_again() -> None:
    rng = np.random.default_rng(3)
    w, routing = _weights(rng), _routing(rng)
    stored = train_head.as_stored(w, routing, SHAPE)
    again = train_head.as_trained(stored, SHAPE)
    assert all((again[name] == values).all() for name, values in w.items()) and len(again) == len(w)
    shipped = as_shipped(stored)
    assert (shipped[ROUTER] == routing[0]).all() and (shipped[ROUTER_BIAS] == routing[1]).all()
    down = stored["ffn_down.weight"]
    assert 0 < np.abs(shipped["ffn_down.weight"] - down).max() < np.abs(down).max() / 200


def test_the_answers_in_a_conversation(demo_model: Path) -> None:
    from strata_tui.demo.head_text import Markers, answers
    from strata_tui.engine.llama import Model

    said = [
        "<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\n",
        "Hello you.<|im_end|>",
        "\n<|im_start|>user\nBye.",
    ]
    model = Model.load(build.source_model())
    parts = [model.tokenize(text) for text in said]
    model.close()
    found = answers(np.array([sum(parts, [])]), Markers.of(build.source_model()))
    assert found.tolist() == [[False] * len(parts[0]) + [True] * len(parts[1]) + [False] * len(parts[2])]
    assert (train_head.next_weights(found) == 1).sum() == len(parts[1])


def test_a_position_of_weight_0_teaches_nothing() -> None:
    rng = np.random.default_rng(1)
    w, (ids, states) = _weights(rng), _batch(rng)
    weight = np.ones((SHAPE.texts, SHAPE.length), np.float32)
    weight[:, -1] = 0  # nothing reads the state there
    other = states.copy()
    other[:, -1] = rng.standard_normal(other[:, -1].shape)
    embeddings = rng.standard_normal((SHAPE.vocab, SHAPE.width))
    moved = []
    for given in (states, other):
        trainer = HeadTrainer(SHAPE, w, embeddings, "CPU", 1, feature=0.1)
        try:
            trainer.forward(ids, given, weight)
            trainer.step(1e-3)
            moved.append(trainer.weights()[TOKEN])
        finally:
            trainer.close()
    assert (moved[0] == moved[1]).all() and (moved[0] != w[TOKEN]).any()


def test_the_order_of_rows_can_be_undone() -> None:
    rows = np.arange(48 * 3).reshape(48, 3)
    assert (from_neox(to_neox(rows, 4), 4) == rows).all()
    assert (to_neox(rows, 4) != rows).any()


def _drafts_as_trained(raw: bytes, folder: Path, made: Path) -> None:
    """The engine's drafts behind each token of a text are what the trainer's arithmetic makes likeliest, with experts
    that differ.
    """
    from speculating import GREEDY, opened

    texts = Parts(folder, lambda tokens: np.ones(tokens.shape, np.float32), 0.02)
    texts.look()
    weights, embeddings, shape = train_head.first_weights(build.source_model(), 2)
    shape = replace(shape, length=48, texts=1)
    ids, states, _ = texts.batch(np.random.default_rng(0), shape)
    stored = {
        name: t.data if t.data.dtype == np.float32 else dequantize(t.data, t.tensor_type)
        for name, t in read_head(raw).items()
    }
    rng, down = np.random.default_rng(1), stored["ffn_down.weight"]
    down[:, shape.experts.shared :] += (
        4 * down.std() * rng.standard_normal(down[:, shape.experts.shared :].shape)
    ).astype(np.float32)
    write_head(made.with_suffix(".npz"), stored, {})
    kept = read_head(made.with_suffix(".npz").read_bytes())
    build.write_demo_model(build.source_model(), made, build.load_routers(), None, kept)

    expected = []
    trainer = HeadTrainer(shape, weights, embeddings, "CPU", 1)
    try:
        trainer.load(train_head.as_trained(as_shipped(stored), shape))
        for router in (stored[ROUTER], -stored[ROUTER]):  # the second: other experts
            trainer.route(router, stored[ROUTER_BIAS])
            trainer.forward(ids, states)
            expected.append((trainer.states()[0] @ embeddings.T).argmax(-1).tolist())
    finally:
        trainer.close()
    text = ids[0].tolist()
    with opened(made) as o:
        sampler = o.start(text[:8], GREEDY)
        drafts = []
        for i in range(8, len(text)):
            drafts.append(o.spec.draft(text[i], i, True))
            o.spec.step(text[i], i, [])
        sampler.close()
    same, other = (sum(d is not None and d[0] == t for d, t in zip(drafts, e[8:], strict=True)) for e in expected)
    assert same > 0.8 * len(drafts), "the demo model's states are its source's but for the scales' last places"
    assert other < 0.8 * same, "the experts differ"


def test_the_whole_recipe_and_a_demo_model_with_its_head(
    demo_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from talk import GREEDY, talk

    from strata_tui.engine.modes import Drafting, Modes

    monkeypatch.setenv("STRATA_TUI_CACHE", str(demo_model.parent))
    out, kept, folder = tmp_path / "head.npz", tmp_path / "text.npz", tmp_path / "text"
    size = "--talks 4 --writers 2 --length 48 --tokens 144 --batch 4 --piece 16 --steps 2 --measure 1 --threads 1"
    arguments = ["--gpu", "-1", "-1", "--experts", "2", "--out", str(out), "--keep-text", str(kept)]
    arguments += ["--text", str(folder), *size.split()]
    assert train_head.main(arguments) == 0
    assert [len(talk) for talk in train_head.load_text(kept)] == [48] * 4
    raw = out.read_bytes()
    assert len(raw) < 16 << 20
    assert about_head(raw)["steps"] == 2

    made = tmp_path / "demo.gguf"
    build.write_demo_model(build.source_model(), made, build.load_routers(), None, read_head(raw))
    assert count_heads(read_info(made), 4) == (1, "")
    _drafts_as_trained(raw, folder, tmp_path / "other.gguf")
    with talk(made, modes=Modes(draft=Drafting.TWO)) as session:
        drafts = session.ask("Name three colours.", sampling=GREEDY).done.stats.drafts
    assert drafts is not None and sum(drafts.offered) > 0
