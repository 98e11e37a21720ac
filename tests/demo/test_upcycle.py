"""The demo model says what SmolLM2 says, with experts that can be told apart."""

from __future__ import annotations

import functools
import itertools
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize
from numpy.typing import NDArray

from strata_tui.bench.make_model import lru_hit_rate
from strata_tui.demo.head_data import head_bytes
from strata_tui.demo.source import source_model
from strata_tui.demo.taps import TappedModel
from strata_tui.demo.upcycle import EXPERTS, USED, permutations
from strata_tui.engine.gguf_info import expert_groups, read_info

Floats = NDArray[np.float32]

LAYERS = 30


def chat(question: str) -> str:
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def source() -> Iterator[TappedModel]:
    with TappedModel(source_model(), "ffn_out-0") as model:
        yield model


@pytest.fixture(scope="module")
def demo(demo_model: Path) -> Iterator[TappedModel]:
    with TappedModel(demo_model, r"ffn_moe_topk-\d+|ffn_out-0") as model:
        yield model


@functools.cache
def tensors(path: Path) -> dict[str, ReaderTensor]:
    return {t.name: t for t in GGUFReader(path).tensors}


def floats(tensor: ReaderTensor) -> Floats:
    return dequantize(tensor.data, tensor.tensor_type)


def test_what_the_file_says(demo_model: Path) -> None:
    info = read_info(demo_model)
    assert (info.architecture, info.quantization) == ("glm4moe", "Q4_1")
    layers = LAYERS + bool(head_bytes())  # behind them a NextN block, where one is trained
    assert (info.n_layers, info.n_experts, info.n_experts_used) == (layers, EXPERTS, USED)
    assert [g[0] for g in expert_groups(info)] == list(range(layers))
    assert 200e6 < info.file_bytes < 520e6
    assert info.metadata["general.license"] == "apache-2.0"
    assert "SmolLM2" in str(info.metadata["general.description"])
    assert "Apache License, Version 2.0" in (files("strata_tui.demo") / "NOTICE").read_text()


def test_permutations_differ_and_stay(demo_model: Path) -> None:
    for layer in (0, 17):
        orders = permutations(layer)
        assert orders.shape == (EXPERTS, 16)
        assert (np.sort(orders, axis=1) == np.arange(16)).all()
        assert len({o.tobytes() for o in orders}) == EXPERTS
        assert (orders == permutations(layer)).all()
    assert (permutations(0) != permutations(1)).any()


def test_no_two_experts_share_their_bytes(demo_model: Path) -> None:
    for name, tensor in tensors(demo_model).items():
        if name.endswith("_exps.weight"):
            assert len({expert.tobytes() for expert in tensor.data}) == EXPERTS, name


@pytest.mark.parametrize("layer", [0, 29])
def test_every_expert_computes_the_routed_part(layer: int, demo_model: Path) -> None:
    x = np.random.default_rng(0).standard_normal(576, np.float32)

    def block(gate: Floats, up: Floats, down: Floats) -> Floats:
        g = gate @ x
        result: Floats = down @ (g / (1 + np.exp(-g)) * (up @ x))
        return result

    def weights(path: Path, suffix: str) -> list[Floats]:
        found = tensors(path)
        return [floats(found[f"blk.{layer}.ffn_{role}{suffix}.weight"]) for role in ("gate", "up", "down")]

    whole = block(*weights(source_model(), ""))
    routed = whole - block(*weights(demo_model, "_shexp"))
    outputs = [block(*expert) for expert in zip(*weights(demo_model, "_exps"), strict=True)]
    assert len(outputs) == EXPERTS
    for output in outputs:
        # scales differ by one unit in the last of 11 bits; what they scale cancels in part against the minimum
        assert np.linalg.norm(output - routed) < 2**-8 * np.linalg.norm(routed)
    distances = [np.linalg.norm(a - b) for a, b in itertools.combinations(outputs, 2)]
    assert min(distances) > 2**-14 * np.linalg.norm(routed)


def test_text_is_the_source_models(source: TappedModel, demo: TappedModel) -> None:
    agreed = total = 0
    for question, word in [("What is the capital of France?", "Paris"), ("Write a short poem about the sea.", "")]:
        prompt = source.tokenize(chat(question))
        source.reset()
        theirs = source.greedy(prompt, 60)
        assert word in source.text(theirs)
        demo.reset()
        assert word in demo.text(demo.greedy(prompt, 60))
        demo.reset()
        logits = demo.decode(prompt)
        for token in theirs:
            agreed += int(logits.argmax()) == token
            total += 1
            logits = demo.decode([token])
    # nearly the same weights in other sums: a pick turns where two tokens are about as likely
    assert agreed / total >= 0.9
    assert total > 40


def test_first_block_hardly_differs(source: TappedModel, demo: TappedModel) -> None:
    outputs = []
    for model in (source, demo):
        model.reset()
        model.taps.clear()
        model.decode(model.tokenize("The quick brown fox jumps over the lazy dog."))
        outputs.append(model.taps["ffn_out-0"][0])
    assert outputs[0].shape == outputs[1].shape
    assert np.linalg.norm(outputs[0] - outputs[1]) < 2**-11 * np.linalg.norm(outputs[0])


def test_the_wrong_expert_shows(demo_model: Path, demo: TappedModel, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.gguf"
    shutil.copy(demo_model, wrong)
    for role in ("gate", "up", "down"):  # expert e + 1 in the place of e, in one layer
        data = GGUFReader(wrong, "r+").tensors
        tensor = next(t for t in data if t.name == f"blk.9.ffn_{role}_exps.weight")
        tensor.data[:] = np.roll(tensor.data, -1, axis=0)
        tensor.data.flush()
    demo.reset()
    prompt = demo.tokenize(chat("Why is the sky blue?"))
    right = demo.decode(prompt)
    demo.reset()
    assert (demo.decode(prompt) == right).all()
    with TappedModel(wrong) as model:
        other = model.decode(prompt)
    assert (other != right).mean() > 0.9
    assert int(other.argmax()) == int(right.argmax())


def test_routing_has_skew_and_locality(demo: TappedModel) -> None:
    demo.taps.clear()
    for question in ("Tell me about volcanoes.", "Write a Python loop that prints even numbers."):
        demo.reset()
        prompt = demo.tokenize(chat(question))
        demo.greedy(prompt, 80)
    picks = np.stack([np.concatenate(demo.taps[f"ffn_moe_topk-{layer}"]) for layer in range(LAYERS)], 1)
    assert len(picks) > 120
    third, half = (lru_hit_rate(picks, LAYERS * EXPERTS // n, warm=30) for n in (3, 2))
    assert 0.6 < third < 0.95
    assert third < half < 1.0
    shares = np.stack([np.bincount(picks[:, layer].ravel(), minlength=EXPERTS) for layer in range(LAYERS)]) / len(picks)
    assert shares.max(axis=1).mean() > 1.5 * USED / EXPERTS  # the favourite is picked well above its share
