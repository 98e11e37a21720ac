"""The stager's profiles, threads and buffers change no logit; the profile follows the page cache within a batch."""

from __future__ import annotations

import itertools
import json
import logging
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from model_fixtures import TinyModel
from talk import GREEDY, messages, talk

from strata_tui.bench.page_cache import cached_share, make_cold
from strata_tui.engine import native
from strata_tui.engine.events import FinishReason, TextDelta
from strata_tui.engine.job import Hooks, Job
from strata_tui.engine.llama import Logits, LowLevel
from strata_tui.engine.loading import LoadControl
from strata_tui.engine.modes import Modes, StagerProfile
from strata_tui.engine.opening import open_model
from strata_tui.engine.options import EngineOptions
from strata_tui.engine.reply import Reply
from strata_tui.errors import UserError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import cold_prompt  # noqa: E402

sys.path.remove(str(HERE))

PROFILES = ("auto", "ram", "ssd")
THREADS = (0, 1, 3, 32)
POOLS = (2, 16, 128)
TURN = "the people of water said that their expert could find a long way " * 6


def droppable(path: Path) -> bool:
    try:
        make_cold([path])
    except UserError:
        return False
    return True


@pytest.fixture
def cold_model(tiny_model: TinyModel) -> Path:
    """A model whose file can leave the page cache here."""
    path = tiny_model("qwen3moe")
    if not droppable(path):
        pytest.skip(f"the page cache does not let go of files in {path.parent}")
    return path


def logits_of(model: LowLevel, tokens: list[int]) -> Logits:
    model.clear()
    return model.decode(tokens, all_logits=True)


@pytest.mark.parametrize("direct", ["auto", "on"])
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("name", ["qwen3moe", "deepseek2_fused"])
def test_no_profile_changes_a_logit(name: str, pool: int, direct: str, tiny_model: TinyModel) -> None:
    """All profiles and numbers of threads, warm and cold, against plain llama.cpp."""
    path, core = tiny_model(name), native.load()
    rng = np.random.default_rng(3)
    with LowLevel(path, tier=False, context=160, batch=48) as plain:
        tokens = [int(t) for t in rng.integers(3, plain.model.n_vocab, 120)]
        expected = logits_of(plain, tokens)
    how = {"auto": core.DIRECT_AUTO, "on": core.DIRECT_ON}[direct]
    can_drop = droppable(path)
    with LowLevel(path, slots=8, context=160, batch=48, pool_buffers=pool, direct=how) as model:
        tier = model.tier
        assert tier is not None
        for profile, threads in itertools.product(PROFILES, THREADS):
            tier.set_modes(core.PIN_AUTO, getattr(core, f"STAGER_{profile.upper()}"), -1, threads)
            if can_drop and threads != 3:
                make_cold([path])
            tier.set_phase(core.PHASE_PROMPT)
            before = tier.counters()["prompt"]
            assert logits_of(model, tokens).tobytes() == expected.tobytes(), (profile, threads)
            spent = {k: v - before[k] for k, v in tier.counters()["prompt"].items()}
            raw = tier.modes()
            assert spent["bytes_filled"] > 0
            assert (spent["asks"] > 0) == (profile == "auto")
            assert spent["asks_cached"] <= spent["asks"]
            assert (raw["stager_wanted"], raw["pool_buffers"]) == (profile, pool)
            assert profile in ("auto", raw["stager"])
            assert not threads or raw["stager_threads"] == threads
            assert ("past the page cache" in str(raw["stager_reason"])) == (direct == "on")
            if direct == "auto":
                assert spent["bytes_direct"] == 0
            elif can_drop and profile == "ssd":
                assert spent["bytes_direct"] > 0
        tier.verify(100, 1)


def test_a_model_that_does_not_fit_is_read_past_the_page_cache(tiny_model: TinyModel) -> None:
    core = native.load()
    with LowLevel(tiny_model("qwen3moe"), slots=8, context=64) as model:
        tier = model.tier
        assert tier is not None
        for available, past in ((-1, False), (1 << 40, False), (tier.blob_bytes // 2, True), (1 << 40, False)):
            tier.set_phase(core.PHASE_PROMPT, available)
            assert ("past the page cache: 0.0 GiB of experts" in str(tier.modes()["stager_reason"])) == past
        tier.set_modes(core.PIN_AUTO, core.STAGER_SSD, tier.blob_bytes // 2)
        model.decode([5, 6, 7])
        tier.set_phase(core.PHASE_DECODE)
        model.decode([8])
        assert tier.counters()["prompt"]["bytes_direct"] == tier.counters()["prompt"]["bytes_filled"] > 0


def test_the_profile_follows_the_page_cache_within_a_batch(cold_model: Path) -> None:
    """It leaves half-way through a prompt; the batch then reads it from the disk, and the next one finds it warm."""
    undisturbed = cold_prompt.read_prompt(cold_model, drop=False)
    assert undisturbed.profiles == ["ram"] * cold_prompt.BATCHES
    dropped = cold_prompt.read_prompt(cold_model, drop=True)
    assert dropped.cold is not None and dropped.cold < 0.2
    expected = ["ram"] * cold_prompt.BATCHES
    expected[cold_prompt.DROPPED] = "ssd"
    assert dropped.profiles == expected
    assert dropped.logits == undisturbed.logits


def test_the_same_for_a_user_who_does_not_own_the_file(cold_model: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    try:
        other = pwd.getpwnam("nobody").pw_uid
    except KeyError:
        pytest.skip("there is no user nobody")
    expected = cold_prompt.read_prompt(cold_model, drop=False)
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others
    try:
        path = folder / "model.gguf"
        shutil.copyfile(cold_model, path)
        folder.chmod(0o755)
        path.chmod(0o644)
        command = [sys.executable, cold_prompt.__file__, str(path), str(other)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        told = cold_prompt.Told(**json.loads(done.stdout.splitlines()[-1]))
    finally:
        shutil.rmtree(folder)
    assert not told.writable
    assert told.profiles[cold_prompt.DROPPED] == "ssd"
    assert told.profiles.count("ram") == cold_prompt.BATCHES - 1
    assert told.logits == expected.logits


class Lines(logging.Handler):
    """What was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, Lines]]:
    logger, lines = logging.Logger("test", logging.INFO), Lines()
    logger.addHandler(lines)
    yield logger, lines


def test_the_change_is_in_the_log(cold_model: Path, log: tuple[logging.Logger, Lines]) -> None:
    logger, lines = log

    def reply(drop: bool) -> str:
        cold_model.read_bytes()
        options = EngineOptions(gpu=-1, threads=1, slots=8, batch=16, flash_attention=False)
        model = open_model(cold_model, options, Modes(), lambda _: None, LoadControl(), logger)
        try:
            events: list[object] = []
            rounds = itertools.count()

            def between_rounds() -> None:
                if next(rounds) == 2 and drop:
                    make_cold([cold_model])
                    lines.lines.append("dropped")

            hooks = Hooks(events.append, lambda: False, between_rounds, lambda: None)
            done = Reply(Job(1, tuple(messages(TURN)), GREEDY), model, hooks, logger).run()
        finally:
            model.close()
        assert done.reason in (FinishReason.STOP, FinishReason.LENGTH)
        return "".join(e.text for e in events if isinstance(e, TextDelta))

    expected = reply(drop=False)
    lines.lines.clear()
    assert reply(drop=True) == expected
    told = [line for line in lines.lines if line.startswith("stager: ") or line == "dropped"]
    at = told.index("dropped")
    assert told[at + 1].startswith("stager: ssd (auto: ssd, ")
    assert "of 32 reads cached; " in told[at + 1]
    assert "threads, ring 24)" in told[at + 1]
    assert " asks in " in told[at + 1]
    assert told[at + 2].startswith("stager: ram (auto: ram, ")


def test_cold_and_warm_are_told_apart(cold_model: Path) -> None:
    cold_model.read_bytes()
    assert cached_share([cold_model]) == 1
    make_cold([cold_model])
    share = cached_share([cold_model])
    assert share is not None and share < 0.5


def test_threads_and_buffers_are_settings(tiny_model: TinyModel) -> None:
    options = EngineOptions(gpu=-1, slots=8, stager_threads=5, pool_buffers=7, modes=Modes(stager=StagerProfile.AUTO))
    model = open_model(tiny_model("qwen3moe"), options, Modes(), lambda _: None, LoadControl(), logging.Logger("test"))
    try:
        state = model.refresh().stager
        assert (state.wanted, state.reason.split("; ")[1]) == ("auto", "5 threads, ring 7")
        model.apply(Modes(stager=StagerProfile.SSD))
        assert model.refresh().stager.reason == "chosen; 5 threads, ring 7"
    finally:
        model.close()


@pytest.mark.parametrize("profile", list(StagerProfile))
def test_a_file_that_is_cut_short_ends_the_reply_not_the_process(
    profile: StagerProfile, tiny_model: TinyModel, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    shutil.copyfile(tiny_model("qwen3moe"), path)
    with talk(path, slots=8, modes=Modes(stager=profile)) as session:
        os.truncate(path, path.stat().st_size // 2)
        done = session.ask(TURN).done
        assert done.reason is FinishReason.ERROR
        assert "could not be read from" in done.message
        assert "is the file still whole?" in done.message
