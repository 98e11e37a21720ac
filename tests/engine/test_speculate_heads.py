"""Which files' NextN heads are drafted with, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from model_fixtures import TinyModel
from models import header_only

from strata_tui.engine.gguf_info import read_info
from strata_tui.engine.speculate_heads import count_heads

PARTS = ("nextn.eh_proj", "nextn.enorm", "nextn.hnorm", "ffn_gate_inp")


def _write(path: Path, arch: str, heads: int, parts: tuple[str, ...] = PARTS, layers: int = 4) -> Path:
    tensors = [("token_embd.weight", (32,), 0), ("blk.0.attn_norm.weight", (32,), 0)]
    tensors += [(f"blk.{i}.{part}.weight", (32,), 0) for i in range(layers - heads, layers) for part in parts]
    metadata: dict[str, int | str | list[int]] = {"general.architecture": arch, f"{arch}.block_count": layers}
    if heads:
        metadata[f"{arch}.nextn_predict_layers"] = heads
    return header_only(path / "model.gguf", tensors, metadata, data_bytes=128 * len(tensors))


@pytest.mark.parametrize(
    ("name", "heads"),
    [("glm4moe", 1), ("deepseek2_nextn", 1), ("qwen3next_nextn", 1), ("qwen35moe", 1), ("hy_v3", 3), ("step35", 2)],
)
def test_heads_that_llama_cpp_runs(name: str, heads: int, tiny_model: TinyModel) -> None:
    assert count_heads(read_info(tiny_model(name)), 4) == (heads, "")


@pytest.mark.parametrize(
    ("arch", "heads", "parts", "why"),
    [
        ("qwen3moe", 0, PARTS, "the model has no NextN heads"),
        ("glm5-next", 1, PARTS, "llama.cpp does not run the NextN heads of glm5-next"),
        ("exaone-moe", 1, PARTS, "llama.cpp does not run the NextN heads of exaone-moe"),
        ("glm4moe", 2, PARTS, "llama.cpp does not run 2 NextN heads of glm4moe"),
        ("step35", 5, PARTS, "llama.cpp does not run 5 NextN heads of step35"),
        ("glm4moe", 1, PARTS[3:], "the file leaves out the model's NextN heads"),
        ("step35", 2, PARTS[1:], "the file leaves out the model's NextN heads"),
        ("glm4moe", 1, PARTS[:3], "the model's NextN block has no ffn_gate_inp, which llama.cpp wants there"),
        ("mimo2", 1, PARTS, "the model's NextN block has no attn_qkv, which llama.cpp wants there"),
        ("bailingmoe3", 1, PARTS, "the model's NextN block has no nextn.shared_head_norm, which llama.cpp wants there"),
        ("step35", 4, PARTS, "the file holds the model's NextN heads alone"),
    ],
)
def test_heads_that_are_refused(arch: str, heads: int, parts: tuple[str, ...], why: str, tmp_path: Path) -> None:
    """llama.cpp would run the whole model in their place, or end the process."""
    assert count_heads(read_info(_write(tmp_path, arch, heads, parts)), 4) == (0, why)
