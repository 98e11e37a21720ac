"""Usage profiles: kept between starts, cut by half, never trusted."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import models
import numpy as np
import pytest
from model_fixtures import TinyModel
from talk import talk

from strata_tui.engine import gguf_info
from strata_tui.engine.loading import LoadControl
from strata_tui.engine.modes import Modes, Residency
from strata_tui.engine.opening import OpenModel, open_model
from strata_tui.engine.options import EngineOptions
from strata_tui.engine.profile import SAVE_SECONDS, UsageProfile, model_key

TURN = "the people of water said that their expert could find a long way"
KEY = "0123456789abcdef"


@pytest.fixture
def log() -> logging.Logger:
    return logging.Logger("test")


@pytest.fixture
def lines(log: logging.Logger) -> list[str]:
    """What was logged."""
    said: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    log.addHandler(Keep())
    return said


def floats(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


def written(folder: Path, log: logging.Logger, *values: float) -> Path:
    profile = UsageProfile(folder, KEY, "m", len(values), log)
    profile.note(floats(*values))
    return profile.path


def test_what_was_noted_comes_back_halved(tmp_path: Path, log: logging.Logger) -> None:
    folder = tmp_path / "cache" / "profiles"  # made when it is needed
    assert UsageProfile(folder, KEY, "m", 3, log).read() is None
    assert not folder.exists()
    assert written(folder, log, 4, 0, 1.5) == folder / f"{KEY}.profile"
    again = UsageProfile(folder, KEY, "m", 3, log)
    assert again.read() == floats(2, 0, 0.75)
    again.note(floats(9, 0, 0.1))  # the first has been used, the last has decayed in the adaptive tier
    assert UsageProfile(folder, KEY, "m", 3, log).read() == floats(4.5, 0, 0.375)
    assert [p.name for p in folder.iterdir()] == [f"{KEY}.profile"]


def test_it_is_written_only_now_and_then_and_at_the_end(
    tmp_path: Path, log: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("strata_tui.engine.profile.time.monotonic", lambda: now)
    profile = UsageProfile(tmp_path, KEY, "m", 1, log)

    def stored() -> bytes | None:
        return UsageProfile(tmp_path, KEY, "m", 1, log).read()

    profile.save()
    assert stored() is None  # nothing was used
    profile.note(floats(2))
    assert stored() == floats(1)
    now += SAVE_SECONDS - 1
    profile.note(floats(4))
    assert stored() == floats(1)
    now += 1
    profile.note(floats(6))
    assert stored() == floats(3)
    profile.note(floats(8))
    profile.save()
    assert stored() == floats(4)


BROKEN = {
    "empty": (lambda raw: b"", "Expecting value"),
    "no header": (lambda raw: b"\x00\xff" + raw, "utf-8"),
    "another kind": (lambda raw: raw.replace(b"usage profile", b"photo"), "no usage profile of this version"),
    "a list": (lambda raw: b"[]\n", "no usage profile of this version"),
    "a later version": (lambda raw: raw.replace(b'"version": 1', b'"version": 2'), "of this version"),
    "another model": (lambda raw: raw.replace(KEY.encode(), KEY[::-1].encode()), "another model"),
    "cut short": (lambda raw: raw[:-1], "damaged"),
    "too long": (lambda raw: raw + b"\0", "damaged"),
    "a flipped bit": (lambda raw: raw[:-3] + bytes([raw[-3] ^ 1]) + raw[-2:], "damaged"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_broken_is_ignored_and_replaced(
    kind: str, tmp_path: Path, log: logging.Logger, lines: list[str]
) -> None:
    path = written(tmp_path, log, 4, 2)
    change, why = BROKEN[kind]
    path.write_bytes(change(path.read_bytes()))
    profile = UsageProfile(tmp_path, KEY, "m", 2, log)
    assert profile.read() is None
    assert f"{path} is ignored" in lines[-1] and why in lines[-1]
    profile.note(floats(6, 8))
    assert UsageProfile(tmp_path, KEY, "m", 2, log).read() == floats(3, 4)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_impossible_numbers_are_ignored(value: float, tmp_path: Path, log: logging.Logger, lines: list[str]) -> None:
    profile = UsageProfile(tmp_path, KEY, "m", 2, log)
    profile._usage = np.array([1, value], np.float32)
    profile._changed = True
    profile.save()
    assert UsageProfile(tmp_path, KEY, "m", 2, log).read() is None
    assert "impossible numbers" in lines[-1]


def test_another_number_of_experts_is_another_model(tmp_path: Path, log: logging.Logger, lines: list[str]) -> None:
    written(tmp_path, log, 4, 2)
    assert UsageProfile(tmp_path, KEY, "m", 3, log).read() is None
    assert "another model" in lines[-1]


def test_a_folder_that_cannot_be_written_is_logged(tmp_path: Path, log: logging.Logger, lines: list[str]) -> None:
    (tmp_path / "file").write_text("")
    written(tmp_path / "file" / "profiles", log, 1)
    assert "cannot be written" in lines[-1]


def test_a_models_key_is_its_header_and_size(tmp_path: Path) -> None:
    def key(path: Path) -> str:
        return model_key(gguf_info.read_info(path))

    path = models.qwen3moe(tmp_path / "a.gguf")
    first = key(path)
    moved = path.rename(tmp_path / "b.gguf")
    assert key(moved) == first
    raw = bytearray(moved.read_bytes())
    raw[-5] ^= 1  # of a weight: not looked at
    moved.write_bytes(raw)
    assert key(moved) == first
    moved.write_bytes(bytes(raw) + bytes(32))
    assert key(moved) != first
    raw = raw.replace(b"tiny qwen3moe", b"tiny qwen3mOe")
    moved.write_bytes(raw)
    assert key(moved) != first
    split = models.qwen3moe_split(tmp_path / "split.gguf")
    second = gguf_info.read_info(split).shards[1]
    before = key(split)
    second.write_bytes(second.read_bytes() + bytes(32))
    assert key(split) != before


# With an engine


@contextmanager
def opened(path: Path, log: logging.Logger, folder: Path | None) -> Iterator[OpenModel]:
    options = EngineOptions(gpu=-1, threads=1, profiles=folder)
    model = open_model(path, options, Modes(), lambda _: None, LoadControl(), log)
    try:
        yield model
    finally:
        model.close()


def test_slots_are_filled_with_the_hottest_experts(
    tiny_model: TinyModel, tmp_path: Path, log: logging.Logger, lines: list[str]
) -> None:
    path = tiny_model("qwen3moe")
    info = gguf_info.read_info(path)
    groups = gguf_info.expert_groups(info)
    experts = [(layer, e) for layer, n, _, _ in groups for e in range(n)]
    usage = np.random.default_rng(3).permutation(len(experts)).astype(np.float32) + 1
    stored = UsageProfile(tmp_path, model_key(info), info.name, len(experts), log)
    stored.note(usage.tobytes())
    with opened(path, log, tmp_path) as model:
        residents = {(layer, e) for layer, e, _ in model.tier.residents()}
        assert len(residents) == 22
        heat = dict(zip(experts, usage, strict=True))
        # layers of one size class share their slots: within a layer, no resident is colder than one that is not
        for layer, n, _, _ in groups:
            inside = [heat[layer, e] for e in range(n) if (layer, e) in residents]
            outside = [heat[layer, e] for e in range(n) if (layer, e) not in residents]
            assert not inside or min(inside) > max(outside)
        assert np.frombuffer(model.tier.usage(), np.float32).tolist() == (usage / 2).tolist()
    assert any("filled by the profile" in line for line in lines)
    before = stored.path.read_bytes()
    with opened(path, log, None) as model:
        assert {(layer, e) for layer, e, _ in model.tier.residents()} != residents
    assert stored.path.read_bytes() == before  # no reply, nothing to write; and none without a folder


def test_a_reply_leaves_a_profile_and_the_next_start_uses_it(tiny_model: TinyModel, tmp_path: Path) -> None:
    path, log = tiny_model("qwen3moe"), tmp_path / "engine.log"
    folder = tmp_path / "profiles"
    for residency, said in ((Residency.LRU, "filled evenly"), (Residency.ADAPTIVE, "filled by the profile")):
        with talk(path, profiles=folder, log=log, modes=Modes(residency=residency)) as session:
            assert said in log.read_text()
            session.ask(TURN)
        [file] = folder.iterdir()
        values = np.frombuffer(file.read_bytes().partition(b"\n")[2], "<f4")
        assert values.shape == (64,) and values.max() > 4
    text = log.read_text()
    assert text.count("filled evenly") == text.count("filled by the profile") == 1


def test_a_dense_model_has_none(tiny_model: TinyModel, tmp_path: Path) -> None:
    with talk(tiny_model("llama_dense"), profiles=tmp_path / "profiles") as session:
        session.ask(TURN)
    assert not (tmp_path / "profiles").exists()
