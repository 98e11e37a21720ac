from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from model_fixtures import TinyModel

from strata_tui.bench import make_model
from strata_tui.bench.make_model import Shape, lru_hit_rate, simulated_hit_rate, solve_sigma, write_model
from strata_tui.demo.source import source_model
from strata_tui.demo.taps import TappedModel
from strata_tui.engine.gguf_info import expert_groups, read_info
from strata_tui.errors import UserError

TINY = Shape(layers=4, experts=16, used=2, embd=128, ff=64, context=2048)


def command(*words: str) -> int:
    parser = argparse.ArgumentParser()
    make_model.add_parser(parser.add_subparsers(required=True))
    args = parser.parse_args(["make-model", *words])
    code: int = args.run(args)
    return code


def tiny_flags(out: Path) -> list[str]:
    sizes = {name: getattr(TINY, name) for name in ("layers", "experts", "used", "embd", "ff", "context")}
    return [str(out), *(word for name, n in sizes.items() for word in (f"--{name}", str(n)))]


def test_lru_by_hand() -> None:
    # one layer, one pick a token, two slots: a miss, b miss, a hit, c miss (b goes), b miss (a goes), c hit
    picks = np.array([0, 1, 0, 2, 1, 2]).reshape(6, 1, 1)
    assert lru_hit_rate(picks, 2) == 2 / 6
    assert lru_hit_rate(picks, 2, warm=2) == 2 / 4
    assert lru_hit_rate(picks, 3) == 3 / 6


def test_lru_keeps_layers_apart() -> None:
    picks = np.zeros((4, 2, 1), int)  # expert 0 in both layers: two blobs
    assert lru_hit_rate(picks, 2) == 6 / 8
    assert lru_hit_rate(picks, 1) == 0


def test_even_routers_hit_by_the_share_of_slots() -> None:
    shape = Shape(layers=8, experts=64, used=4)
    assert simulated_hit_rate(shape, 0.0, 256, seed=0) == pytest.approx(0.5, abs=0.03)
    assert simulated_hit_rate(shape, 0.0, 512, seed=0) == 1.0


@pytest.mark.parametrize(("rate", "share"), [(0.7, 0.5), (0.95, 0.5), (0.6, 0.25)])
def test_solved_skew_reaches_the_rate(rate: float, share: float) -> None:
    shape = Shape(layers=6, experts=32, used=4)
    slots = round(share * 6 * 32)
    sigma, reached = solve_sigma(shape, rate, slots, seed=3)
    assert reached == pytest.approx(rate, abs=0.005)
    assert simulated_hit_rate(shape, sigma, slots, seed=3) == reached


def test_rates_that_cannot_be_had() -> None:
    shape = Shape(layers=4, experts=16, used=4)
    with pytest.raises(UserError, match="cannot be had"):
        solve_sigma(shape, 0.3, 48, seed=0)
    with pytest.raises(UserError, match="cannot be had"):
        solve_sigma(shape, 0.99, 4, seed=0)


def test_llama_cpp_reaches_the_printed_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "m.gguf"
    assert command(*tiny_flags(out), "--hit-rate", "0.85") == 0
    printed = capsys.readouterr().out
    reached = float(printed.split("simulated hit rate ")[1].split()[0])
    assert reached == pytest.approx(0.85, abs=0.005)
    assert "with 32 slots" in printed

    with TappedModel(out, r"ffn_moe_topk-\d+", context=1024) as model:
        for token in np.random.default_rng(1).integers(1000, 40000, 500):
            logits = model.decode([int(token)])
        picks = np.stack([np.concatenate(model.taps[f"ffn_moe_topk-{layer}"]) for layer in range(4)], 1)
    assert np.isfinite(logits).all()
    assert lru_hit_rate(picks, 32, warm=100) == pytest.approx(reached, abs=0.03)
    assert len({tuple(sorted(row)) for row in picks[:, 3]}) > 20, "tokens must not all pick the same experts"


@pytest.mark.parametrize("kind", make_model.TYPES)
def test_every_type_is_written_whole_and_experts_differ(kind: str, tmp_path: Path, tiny_model: TinyModel) -> None:
    out = tmp_path / "m.gguf"
    vocabulary = tiny_model("llama_dense")
    assert command(*tiny_flags(out), "--vocab", str(vocabulary), "--type", kind, "--router-sigma", "0.5") == 0
    info = read_info(out)
    assert info.n_vocab == read_info(vocabulary).n_vocab
    assert info.metadata["tokenizer.chat_template"] == read_info(vocabulary).metadata["tokenizer.chat_template"]
    assert [g[:3] for g in expert_groups(info)] == [(layer, 16, 2) for layer in range(4)]
    seen = [e.tobytes() for t in GGUFReader(out).tensors if "_exps" in t.name for e in t.data]
    assert len(seen) == len(set(seen)) == 4 * 3 * 16
    with TappedModel(out, context=64) as model:
        assert np.isfinite(model.decode([5, 6, 7])).all()


def test_same_seed_same_file(tmp_path: Path, tiny_model: TinyModel) -> None:
    files = [tmp_path / f"{i}.gguf" for i in range(3)]
    for i, path in enumerate(files):
        write_model(path, tiny_model("llama_dense"), TINY, 0.5, seed=i // 2)
    first, again, other = (path.read_bytes() for path in files)
    assert first == again != other


def test_refusals_leave_nothing_behind(tmp_path: Path, tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "m.gguf"
    for words, message in [
        (["--used", "17"], "cannot use 17 of 16"),
        (["--embd", "100"], "multiple of 64"),
        (["--ff", "0"], "at least 1"),
        (["--slots-fraction", "1.5"], "at most 1"),
        (["--router-sigma", "-1"], "negative"),
        (["--vocab", str(tmp_path / "none.gguf")], "no model file"),
    ]:
        with pytest.raises(UserError, match=message):
            command(*tiny_flags(out), *words)
    with pytest.raises(UserError, match="cannot be written"):
        write_model(tmp_path / "no folder" / "m.gguf", source_model(), TINY, 0.5)

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_model(out, tiny_model("llama_dense"), TINY, 0.5, progress=stop)
    assert list(tmp_path.iterdir()) == []
    out.write_text("mine")
    with pytest.raises(UserError, match="is there already"):
        command(*tiny_flags(out))
    assert out.read_text() == "mine"
