"""`strata-tui models`, and models named as it lists them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np

from .command_line import Cli, needs_engine, refused


def write_gguf(path: Path, experts: int) -> None:
    """A file with a header like a model's and one expert tensor; not enough to run."""
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_name("Tiny")
    writer.add_block_count(1)
    writer.add_context_length(2048)
    writer.add_expert_count(experts)
    writer.add_expert_used_count(2)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for part in ("gate", "up", "down"):
        writer.add_tensor(f"blk.0.ffn_{part}_exps.weight", np.zeros((experts, 8, 8), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_models(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    (folder / "deep").mkdir(parents=True)
    write_gguf(folder / "deep" / "tiny.gguf", 4)
    (folder / "again.gguf").symlink_to(folder / "deep" / "tiny.gguf")
    (folder / "broken.gguf").write_bytes(b"not a model")
    (folder / "big-00002-of-00002.gguf").write_bytes(b"a later shard is not listed by itself")
    (folder / "gone.gguf").symlink_to(folder / "nowhere")
    (folder / "notes.txt").write_text("no model")
    done = cli("models", str(folder))
    assert done.returncode == 0
    (line,) = done.stdout.splitlines()  # one file, under one name
    assert "qwen3moe" in line
    assert "4 experts, 2 used" in line
    assert line.endswith("again.gguf")
    (warning,) = done.stderr.splitlines()
    assert "left out" in warning
    assert "broken.gguf" in warning
    record, broken = json.loads(cli("models", "--json", "--plan", str(folder)).stdout)
    assert (record["n_experts"], record["context_trained"], record["expert_bytes"]) == (4, 2048, 3 * 4 * 8 * 8 * 4)
    assert record["plan"]["slots"] < record["plan"]["experts"] == 4
    assert broken["path"].endswith("broken.gguf") and "not a GGUF" in broken["problem"]
    assert "2 of 4 slots, 2048 ctx" in cli("models", "--plan", str(folder)).stdout


def test_no_models(cli: Cli, tmp_path: Path) -> None:
    done = cli("models")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"No GGUF files in {tmp_path / 'hub'}, /none" in done.stderr


@needs_engine
def test_a_model_may_be_named_as_it_is_listed(cli: Cli, tmp_path: Path, tiny_model: Callable[[str], Path]) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    for name in ("one-Q8", "two-Q8"):
        (folder / f"{name}.gguf").write_bytes(tiny_model("llama_dense").read_bytes())
    flags = ("--gpu", "-1", "--threads", "1", "--max-tokens", "3", "--ctx", "512")
    done = cli("ask", "hello", "-m", "one", *flags, LLAMA_CACHE=str(folder))
    assert done.returncode == 0, done.stderr
    refused(cli("ask", "hello", "-m", "q8", LLAMA_CACHE=str(folder)), "q8 may mean 2 models: one-Q8, two-Q8.")
    refused(cli("ask", "hello", "-m", "three", LLAMA_CACHE=str(folder)), "no model file")
