from __future__ import annotations

import itertools

import numpy as np

from strata_tui.demo.router_data import load_routers
from strata_tui.demo.routers import corpus_chats, fit_router, hidden_states
from strata_tui.demo.source import source_model
from strata_tui.demo.upcycle import EXPERTS, USED


def test_shipped_routers_fit_the_source_model() -> None:
    layers = hidden_states(source_model(), corpus_chats()[:2])
    shipped = load_routers().astype(np.float32)
    assert shipped.shape == (len(layers), EXPERTS, layers[0][0].shape[1])
    chance = USED / EXPERTS
    locality = []
    for texts, router in zip(layers, shipped, strict=True):
        logits = [text[4:] @ router.T for text in texts]
        assert 0.5 < np.concatenate(logits).std() < 2
        picks = [np.argsort(-text, axis=1)[:, :USED] for text in logits]
        kept = [len(set(a) & set(b)) / USED for text in picks for a, b in itertools.pairwise(text.tolist())]
        locality.append(np.mean(kept))
        favourites = {np.bincount(text.ravel(), minlength=EXPERTS).argmax() for text in picks}
        assert len(favourites) > 1, "a story and code must not have the same favourite"
    assert min(locality) > 1.3 * chance, "neighbours must share more experts than chance has it"
    assert np.mean(locality) > 2.5 * chance


def test_corpus_is_a_few_thousand_words_of_several_kinds() -> None:
    chats = corpus_chats()
    assert len(chats) >= 10
    assert all(c.startswith("<|im_start|>user\n") and c.endswith("<|im_end|>\n") for c in chats)
    assert 1500 < sum(len(c.split()) for c in chats) < 5000
    assert any("```python" in c for c in chats)


def test_router_tells_topics_apart_and_ignores_what_all_tokens_share() -> None:
    rng = np.random.default_rng(0)
    topics = rng.standard_normal((EXPERTS, 64)).astype(np.float32)
    shared = 20 * np.ones(64, np.float32)
    texts = [
        (shared + 2 * topics[i % EXPERTS] + 0.5 * rng.standard_normal((60, 64))).astype(np.float32)
        for i in range(2 * EXPERTS)
    ]
    router = fit_router(texts, seed=0)
    assert router.shape == (EXPERTS, 64)
    assert (router == fit_router(texts, seed=0)).all()
    assert abs(router @ np.concatenate([t[4:] for t in texts]).mean(0)).max() < 1e-2
    first, again = np.array([(text.mean(0) @ router.T).argmax() for text in texts]).reshape(2, EXPERTS)
    assert (first == again).all()
    assert len(set(first)) > 0.8 * EXPERTS
