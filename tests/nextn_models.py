"""Small random GGUFs with NextN blocks: one, several that are chained, behind attention and behind recurrent layers."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q
from models import EXPERTS, LAYERS, WIDTH, Builder, TinyWriter, deepseek2, hybrid


def glm4moe(path: Path, *, seed: int = 0, layers: int = LAYERS, echo: bool = False, broken: bool = False) -> Path:
    """With a NextN block behind its layers; `broken`: of numbers that are none."""
    t = TinyWriter(path, "glm4moe", seed)
    t.common(layers=layers + 1)
    t.moe(
        expert_shared_count=1,
        leading_dense_block_count=0,
        expert_weights_norm=True,
        expert_gating_func=int(gguf.ExpertGatingFuncType.SIGMOID),
        nextn_predict_layers=1,
    )
    t.head()
    for layer in range(layers + 1):
        b = f"blk.{layer}."
        t.norm(b + "attn_norm.weight")
        t.attention(b)
        t.norm(b + "post_attention_norm.weight")
        t.router(b)
        t.raw(b + "exp_probs_b.bias", 0.02 * t.rng.standard_normal(EXPERTS, np.float32))
        t.experts(b, Q.Q4_0, Q.Q4_0)
        t.shared_expert(b)
    t.nextn(layers, echo=echo, broken=broken)
    return t.close()


def glm4moe_echo(path: Path, *, seed: int = 0) -> Path:
    """As glm4moe, with a NextN block that often says what the model says."""
    return glm4moe(path, seed=seed, layers=1, echo=True)


def glm4moe_nan(path: Path) -> Path:
    """As glm4moe, with a NextN block that gives no numbers."""
    return glm4moe(path, broken=True)


def deepseek2_nextn(path: Path) -> Path:
    """Latent attention, with one NextN block."""
    return deepseek2(path, heads=1)


def qwen3next_nextn(path: Path) -> Path:
    """Hybrid, and its states cannot be taken back."""
    return hybrid(path, heads=1, layers=2, every=2, echo=True)


def qwen35moe(path: Path) -> Path:
    """Hybrid, with one NextN block; llama.cpp keeps its states of the last tokens."""
    return hybrid(path, arch="qwen35moe", heads=1, layers=2, every=2, echo=True)


def hy_v3(path: Path, *, seed: int = 0, layers: int = 2, heads: int = 3, dense: bool = False, n_vocab: int = 0) -> Path:
    """With chained heads. `dense`: without experts."""
    t = TinyWriter(path, "hy_v3", seed, n_vocab=n_vocab)
    t.common(layers=layers + heads)
    t.moe(expert_weights_norm=True, nextn_predict_layers=heads)
    t.head(gain=1.0 if n_vocab else 3.0)  # of ten tokens, none is to be all but certain
    for layer in range(layers + heads):
        b = f"blk.{layer}."
        t.norm(b + "attn_norm.weight")
        t.attention(b, qk_norm=True)
        t.norm(b + "ffn_norm.weight")
        if dense:
            t.dense(b, 2 * WIDTH)
        else:
            t.router(b)
            t.raw(b + "exp_probs_b", 0.02 * t.rng.standard_normal(EXPERTS, np.float32))
            t.experts(b, Q.Q4_0, Q.Q4_0)
            t.shared_expert(b)
        if layer >= layers:
            t.nextn(layer, echo=True)
    return t.close()


def step35(path: Path, *, seed: int = 0, layers: int = 2, heads: int = 2) -> Path:
    """With chained heads, and a sliding window in every second layer."""
    t = TinyWriter(path, "step35", seed)
    t.common(layers=layers + heads)
    t.moe(nextn_predict_layers=heads, attention__sliding_window=24, expert_shared_feed_forward_length=96)
    t.w.add_array("step35.attention.sliding_window_pattern", [layer % 2 == 0 for layer in range(layers + heads)])
    t.head()
    for layer in range(layers + heads):
        b = f"blk.{layer}."
        t.norm(b + "attn_norm.weight")
        t.attention(b, qk_norm=True)
        t.random(b + "attn_gate.weight", 4, WIDTH)
        t.norm(b + "ffn_norm.weight")
        t.router(b)
        t.raw(b + "exp_probs_b.bias", 0.02 * t.rng.standard_normal(EXPERTS, np.float32))
        t.experts(b, Q.Q4_0, Q.Q4_0)
        t.shared_expert(b)
        if layer >= layers:
            t.nextn(layer, echo=True)
    return t.close()


def ten_tokens(path: Path) -> Path:
    """A vocabulary of ten tokens, and no experts, so that a step takes no time: for statistics of what is sampled."""
    return hy_v3(path, layers=1, heads=1, dense=True, n_vocab=10)


NEXTN_MODELS: dict[str, Builder] = {
    "glm4moe": glm4moe,
    "glm4moe_echo": glm4moe_echo,
    "deepseek2_nextn": deepseek2_nextn,
    "qwen3next_nextn": qwen3next_nextn,
    "qwen35moe": qwen35moe,
    "hy_v3": hy_v3,
    "step35": step35,
    "ten_tokens": ten_tokens,
}
BROKEN_MODELS: dict[str, Builder] = {"glm4moe_nan": glm4moe_nan}  # their heads draft nothing
