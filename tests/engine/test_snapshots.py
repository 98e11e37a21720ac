"""Coming back to a chat: same text as from a fresh start, and only what is new is read."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import models
import pytest
from model_fixtures import TinyModel
from nextn_models import NEXTN_MODELS
from talk import GREEDY, PATIENCE, Answer, Talk, fresh, messages, talk

from strata_tui.engine import snapshots as module
from strata_tui.engine.events import FinishReason, Loaded, Message, Notice, Sampling, TextDelta
from strata_tui.engine.modes import Drafting, Modes
from strata_tui.engine.snapshot_names import SUFFIX

TURN = "the people of water said that their expert could find a long way"
A = " ".join([TURN] * 6)
B = "what did the first expert write about the arena " * 8
MORE = "now look at the router of the other arena"
KINDS = ["qwen3moe", "gpt_oss", "qwen3next", "deepseek2", "llama_dense"]  # attention, window, hybrid, latent, dense
RIGID = ("gpt_oss", "qwen3next")  # those that need checkpoints
ONE = replace(GREEDY, max_tokens=1)
OFF, ALWAYS = Modes(draft=Drafting.OFF), Modes(draft=Drafting.FOUR)


@contextmanager
def kept(path: Path, folder: Path, **options: object) -> Iterator[Talk]:
    """An engine with snapshots in RAM and in `folder`."""
    values: dict[str, object] = {"modes": OFF, "snapshots": folder, "log": folder.parent / "engine.log"}
    with talk(path, **(values | options)) as session:
        yield session


def reused(answer: Answer) -> tuple[int, int | None, int | None]:
    stats = answer.done.stats
    return stats.reused_tokens, stats.reused_ram, stats.reused_disk


def logged(folder: Path) -> str:
    return (folder.parent / "engine.log").read_text(encoding="utf-8")


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))


@pytest.mark.parametrize("modes", [OFF, ALWAYS], ids=["plain", "drafts"])
@pytest.mark.parametrize("name", [*KINDS, "glm4moe_echo"])
def test_two_chats_in_turn(name: str, modes: Modes, tiny_model: TinyModel, tmp_path: Path) -> None:
    path = tiny_model(name)
    with kept(path, tmp_path / "kv", modes=modes) as session:
        first = session.ask(A, chat="1")
        other = session.ask(B, chat="2")
        second = session.ask(A, first.text, MORE, chat="1")
        again = session.ask(B, other.text, MORE, chat="2")
    assert second.text == fresh(path, [A, first.text, MORE], modes=modes)
    assert again.text == fresh(path, [B, other.text, MORE], modes=modes)
    for before, answer in ((first, second), (other, again)):
        total, ram, disk = reused(answer)
        assert before.done.stats.prompt_tokens - 1 <= total == ram
        assert disk == 0
        assert not [n for n in answer.notices if "again" in n]


@pytest.mark.parametrize("name", KINDS)
def test_only_what_is_new_is_read(name: str, tiny_model: TinyModel, tmp_path: Path) -> None:
    """A reply of one token, which is not in the memory, is followed by its own prompt."""
    path = tiny_model(name)
    with kept(path, tmp_path / "kv") as session:
        held = session.ask(A, sampling=ONE, chat="1").done.stats.context_used
        session.ask(B, chat="2")
        answer = session.ask(A, "", MORE, chat="1")
    assert reused(answer) == (held, held, 0)
    assert answer.done.stats.read_again == 0
    assert answer.text == fresh(path, [A, "", MORE])


@pytest.mark.parametrize("name", [*KINDS, "glm4moe_echo"])
def test_another_start_reads_them_from_the_disk(name: str, tiny_model: TinyModel, tmp_path: Path) -> None:
    path, folder = tiny_model(name), tmp_path / "kv"
    with kept(path, folder) as session:
        first = session.ask(A, chat="1")
        held = session.ask(B, sampling=ONE, chat="2").done.stats.context_used
    assert len(files(folder)) == 2
    assert {f.stat().st_mode & 0o777 for f in files(folder)} == {0o600}
    with kept(path, folder) as session:
        disk = session.engine.snapshot().memory.snapshots_disk
        assert disk == sum(f.stat().st_size for f in files(folder))
        second = session.ask(A, first.text, MORE, chat="1")
        other = session.ask(B, "", MORE, chat="2")
    total, ram, from_disk = reused(second)
    assert first.done.stats.prompt_tokens - 1 <= total == from_disk
    assert ram == 0
    assert reused(other) == (held, 0, held)
    assert second.text == fresh(path, [A, first.text, MORE])
    assert other.text == fresh(path, [B, "", MORE])


def test_a_fork_goes_on_from_the_other_chats(tiny_model: TinyModel, tmp_path: Path) -> None:
    with kept(tiny_model("qwen3moe"), tmp_path / "kv") as session:
        held = session.ask(A, sampling=ONE, chat="1").done.stats.context_used
        session.ask(B, chat="2")
        assert reused(session.ask(A, "", MORE, chat="3")) == (held, held, 0)


@pytest.mark.parametrize("name", KINDS)
def test_another_reply_to_the_same_message(name: str, tiny_model: TinyModel, tmp_path: Path) -> None:
    """No memory is read again for it, a running state or a window included."""
    path = tiny_model(name)
    with kept(path, tmp_path / "kv") as session:
        first, second = session.ask(A, chat="1"), session.ask(A, chat="1")
        session.ask(B, chat="2")
        third = session.ask(A, chat="1")
    assert first.text == second.text == third.text == fresh(path, [A])
    prompt = first.done.stats.prompt_tokens
    assert reused(second) == (prompt - 1, 0, 0)
    assert reused(third) == (prompt - 1, prompt - 1, 0)
    assert not second.notices + third.notices


@pytest.mark.parametrize("name", RIGID)
def test_an_edited_message_goes_back_to_the_end_of_the_turn_before(
    name: str, tiny_model: TinyModel, tmp_path: Path
) -> None:
    path = tiny_model(name)
    edited = B.replace("first", "other")
    with kept(path, tmp_path / "kv", batch=32) as session:
        held = session.ask(A, sampling=ONE, chat="1").done.stats.context_used
        session.ask(A, "", B, chat="1")
        answer = session.ask(A, "", edited, chat="1")
    assert held <= answer.done.stats.reused_tokens < answer.done.stats.prompt_tokens - 40
    assert answer.text == fresh(path, [A, "", edited], batch=32)


@pytest.mark.parametrize("name", ["qwen3moe", "qwen3next"])
def test_a_stopped_reply_goes_on_after_another_chat(name: str, tiny_model: TinyModel, tmp_path: Path) -> None:
    path = tiny_model(name)
    long = replace(GREEDY, max_tokens=200)
    with kept(path, tmp_path / "kv", copy_delay_us=2000) as session:
        reply = session.engine.generate(messages(A), long, chat="1")
        session.wait(lambda e: isinstance(e, TextDelta))
        session.engine.cancel(reply)
        assert session.answer(reply).reason is FinishReason.CANCELLED
        said = "".join(e.text for e in session.seen if isinstance(e, TextDelta))
        session.ask(B, chat="2", sampling=ONE)
        begun = [*messages(A), Message("assistant", said)]
        rest = session.answer(session.engine.generate(begun, replace(long, max_tokens=12), go_on=True, chat="1"))
    whole = fresh(path, [A], long, modes=OFF)
    assert said and said + rest.text == whole[: len(said + rest.text)]
    assert rest.done.stats.reused_ram == rest.done.stats.reused_tokens > 90


def test_a_cancelled_prompt_of_a_running_state_goes_on_from_its_last_checkpoint(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PASSING", 32)
    path = tiny_model("qwen3next")
    with kept(path, tmp_path / "kv", batch=16, copy_delay_us=2000, stream_from=0, slots=32) as session:
        reply = session.engine.generate(messages(" ".join([A] * 3)), GREEDY, chat="1")
        session.wait(lambda e: getattr(e, "done", 0) and getattr(e, "done", 0) >= 64)
        session.engine.cancel(reply)
        assert session.answer(reply).reason is FinishReason.CANCELLED
        answer = session.ask(" ".join([A] * 3), chat="1")
    assert answer.done.stats.reused_tokens >= 32
    assert answer.text == fresh(path, [" ".join([A] * 3)], batch=16)


@pytest.mark.parametrize("name", [n for n in NEXTN_MODELS if n != "ten_tokens"])
def test_sampled_text_with_heads_is_what_it_is_without_another_chat(
    name: str, tiny_model: TinyModel, tmp_path: Path
) -> None:
    """What the heads propose decides which random numbers are used: their memory and their row come back, too."""
    path = tiny_model(name)
    sampling = Sampling(temperature=1.0, top_k=0, min_p=0.0, repeat_penalty=1.0, seed=3, max_tokens=48)
    texts, offered = [], []
    for between in (False, True):
        with kept(path, tmp_path / f"kv{between}", modes=ALWAYS, lookup=False) as session:
            session.ask(A, sampling=ONE, chat="1")
            if between:
                session.ask(B, chat="2", sampling=sampling)
            answer = session.ask(A, "", MORE, chat="1", sampling=sampling)
            assert (reused(answer)[1] or 0) > 0 or not between
            texts.append(answer.text)
            assert answer.done.stats.drafts is not None
            offered.append((answer.done.stats.drafts.offered, answer.done.stats.drafts.accepted))
    assert texts[0] == texts[1]
    assert offered[0] == offered[1] != ((0, 0, 0, 0), (0, 0, 0, 0))


# Files that must not be used


def _damaged(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-1000] ^= 1
    path.write_bytes(raw)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def _line(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"chat": "1"', b'"chat": "2"', 1))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [_damaged, _cut, _longer, _line, _empty])
@pytest.mark.parametrize("name", ["qwen3moe", "qwen3next"])
def test_a_damaged_file_is_never_used(name: str, harm: object, tiny_model: TinyModel, tmp_path: Path) -> None:
    path, folder = tiny_model(name), tmp_path / "kv"
    with kept(path, folder) as session:
        session.ask(A, sampling=ONE, chat="1")
    (file,) = files(folder)
    harm(file)  # type: ignore[operator]
    with kept(path, folder) as session:
        answer = session.ask(A, "", MORE, chat="1")
        assert not file.exists()
        assert reused(answer) == (0, 0, 0)
        assert answer.text == fresh(path, [A, "", MORE])
    assert f"{file} is ignored and removed: " in logged(folder)


def test_another_models_file_under_this_ones_name(tiny_model: TinyModel, tmp_path: Path) -> None:
    """Two models of the same shape and header, and other weights: their snapshots would fit, and be wrong."""
    folder, path = tmp_path / "kv", tiny_model("qwen3moe")
    twin = models.qwen3moe(tmp_path / "qwen3moe.gguf", seed=1)
    assert twin.stat().st_size == path.stat().st_size
    for model in (path, twin):
        with kept(model, folder) as session:
            session.ask(A, sampling=ONE, chat="1")
    mine = next(f for f in files(folder) if f"written to {f}" in logged(folder).splitlines()[-1])
    other = next(f for f in files(folder) if f != mine)
    other.replace(mine)
    with kept(twin, folder) as session:
        answer = session.ask(A, "", MORE, chat="1")
        assert reused(answer) == (0, 0, 0)
        assert not mine.exists()
    assert "made with another model" in logged(folder)
    assert answer.text == fresh(twin, [A, "", MORE])


def test_other_settings_leave_the_file_alone(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder, path = tmp_path / "kv", tiny_model("qwen3moe")
    with kept(path, folder) as session:
        session.ask(A, sampling=ONE, chat="1")
    (file,) = files(folder)
    with kept(path, folder, flash_attention=True) as session:
        assert reused(session.ask(A, "", MORE, chat="1")) == (0, 0, 0)
    with kept(path, folder, context=512) as session:  # the size of the context does not matter to this model
        assert reused(session.ask(A, "", MORE, chat="1"))[2] == 97
    assert file.exists()


# Room


def test_what_the_ram_cannot_hold_goes_to_the_disk(tiny_model: TinyModel, tmp_path: Path) -> None:
    """A chat of 97 tokens takes about 105 kB, so there is room for two: the one used longest ago is written."""
    folder, path = tmp_path / "kv", tiny_model("qwen3moe")
    budget = 250_000 / 2**30
    with kept(path, folder, snapshot_ram_gib=budget) as session:
        for number in range(1, 5):
            session.ask(f"{number} {A}", sampling=ONE, chat=str(number))
        answer = session.ask(f"1 {A}", "", MORE, chat="1")
        assert (reused(answer)[2] or 0) > 90
        answer = session.ask(f"3 {A}", "", MORE, chat="3")
        assert (reused(answer)[1] or 0) > 90
        assert session.engine.snapshot().memory.snapshots_ram <= 250_000
        assert answer.text == fresh(path, [f"3 {A}", "", MORE])


def test_the_disk_keeps_what_was_used_last(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder, path = tmp_path / "kv", tiny_model("qwen3moe")
    with kept(path, folder, snapshot_disk_gib=350_000 / 2**30) as session:
        for number in range(1, 6):
            session.ask(f"{number} {A}", sampling=ONE, chat=str(number))
    assert {f.stem.partition("-")[2] for f in files(folder)} == {"3", "4", "5"}
    assert sum(f.stat().st_size for f in files(folder)) <= 350_000


def test_a_chat_too_large_for_the_ram_is_only_written(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder, path = tmp_path / "kv", tiny_model("qwen3moe")
    with kept(path, folder, snapshot_ram_gib=0) as session:
        held = session.ask(A, sampling=ONE, chat="1").done.stats.context_used
        session.ask(B, chat="2")
        answer = session.ask(A, "", MORE, chat="1")
        assert answer.done.stats.reused_tokens == held
        assert answer.text == fresh(path, [A, "", MORE])


@pytest.mark.parametrize("name", ["qwen3moe", "qwen3next"])
def test_none_are_kept_where_none_are_wanted(name: str, tiny_model: TinyModel, tmp_path: Path) -> None:
    folder, path = tmp_path / "kv", tiny_model(name)
    with kept(path, folder, snapshot_ram_gib=0, snapshot_disk_gib=0) as session:
        first = session.ask(A, chat="1")
        session.ask(B, chat="2")
        answer = session.ask(A, first.text, MORE, chat="1")
        assert session.engine.snapshot().memory.snapshots_ram == 0
    assert answer.done.stats.reused_tokens < 10
    assert (answer.done.stats.read_again or 0) > 100, "all of the earlier turn"
    assert not folder.exists()
    assert answer.text == fresh(path, [A, first.text, MORE])


def test_without_a_chat_nothing_is_kept(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    with kept(tiny_model("qwen3next"), folder) as session:
        session.ask(A)
        session.ask(B)
        assert reused(session.ask(A)) == (0, 0, 0)
        assert session.engine.snapshot().memory.snapshots_ram == 0
    assert not files(folder)


def test_a_chat_that_is_gone_for_good(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder, path = tmp_path / "kv", tiny_model("qwen3moe")
    with kept(path, folder) as session:
        for number in "123":
            session.ask(f"{number} {A}", sampling=ONE, chat=number)
    with kept(path, folder) as session:
        session.ask(f"2 {A}", "", MORE, chat="2")
        session.ask(f"3 {A}", "", MORE, chat="3")
        session.engine.forget(["1", "2", "3"])  # on the disk, in RAM, in the context
        assert reused(session.ask(f"1 {A}", chat="4"))[1:] == (0, 0)
        assert reused(session.ask(f"2 {A}", chat="4"))[1:] == (0, 0)
    assert [f.stem.partition("-")[2] for f in files(folder)] == ["4"]


def test_a_folder_that_cannot_be_written_changes_nothing_else(tiny_model: TinyModel, tmp_path: Path) -> None:
    path = tiny_model("qwen3moe")
    (tmp_path / "kv").write_text("a file in its place")
    with kept(path, tmp_path / "kv") as session:
        session.ask(A, sampling=ONE, chat="1")
        session.ask(B, chat="2")
        answer = session.ask(A, "", MORE, chat="1")
        assert (reused(answer)[1] or 0) > 90
        assert not [e for e in session.seen if isinstance(e, Notice)]
    assert "was not written" in logged(tmp_path / "kv")


@pytest.mark.parametrize("ram", [1, 0], ids=["in RAM", "on the disk"])
def test_what_the_expert_cache_spoiled_is_not_kept(ram: int, tiny_model: TinyModel, tmp_path: Path) -> None:
    """A check of the cache fails in the fourth chat: what was computed before it may be as wrong."""
    from strata_tui.engine import native

    core = native.load()
    folder = tmp_path / "kv"
    fault = core.FAULT_NEXT_EXPERT
    with kept(tiny_model("qwen3moe"), folder, verify_cache=4, fault=fault, snapshot_ram_gib=ram) as session:
        reasons = [session.ask(f"{n} {A}", sampling=ONE, chat=n).reason for n in "1234"]
        assert reasons == [FinishReason.LENGTH] * 3 + [FinishReason.ERROR]
        assert reused(session.ask(f"1 {A}", "", MORE, sampling=ONE, chat="5"))[1:] == (0, 0)
    assert {f.stem.partition("-")[2] for f in files(folder)} == {"5"}


def test_an_idle_engine_saves_by_itself(tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE", 0.0)
    with kept(tiny_model("qwen3moe"), tmp_path / "kv") as session:
        session.ask(A, sampling=ONE, chat="1")
        end = time.monotonic() + PATIENCE
        while not session.engine.snapshot().memory.snapshots_ram:
            assert time.monotonic() < end
            time.sleep(0.02)


def test_the_plan_names_them(tiny_model: TinyModel, tmp_path: Path) -> None:
    with talk(snapshots=tmp_path, snapshot_ram_gib=0.5, snapshot_disk_gib=2) as session:
        loaded = session.open(tiny_model("qwen3moe"))
    assert isinstance(loaded, Loaded)
    (line,) = [p for p in loaded.plan if p.label == "KV snapshots"]
    assert (line.bytes, line.note) == (2**29, "at most: --snapshot-ram-gib; 2.00 GiB more on the disk")


@pytest.mark.parametrize("name", ["qwen3moe", "qwen3next", "glm4moe_echo"])
def test_mixed_turns_of_three_chats_end_as_fresh_ones_do(name: str, tiny_model: TinyModel, tmp_path: Path) -> None:
    """New messages, edits, other replies, stops and starts of the engine, with room for one chat in RAM and two on
    the disk."""
    path, folder, rng = tiny_model(name), tmp_path / "kv", random.Random(5)
    said: dict[str, list[str]] = {"1": [A], "2": [B], "3": [f"{MORE} {A}"]}
    alone: dict[tuple[str, ...], str] = {}
    sources = {"context": 0, "ram": 0, "disk": 0}
    for _ in range(3):
        room = {"snapshot_ram_gib": 260_000 / 2**30, "snapshot_disk_gib": 550_000 / 2**30}
        with kept(path, folder, modes=ALWAYS, **room) as session:
            for _ in range(14):
                chat = rng.choice("1123")
                turns = said[chat]
                if rng.random() < 0.2:
                    turns[-1] = f"{turns[-1]} {rng.choice(('or not', 'as well'))}"
                reply = session.engine.generate(messages(*turns), ONE, chat=chat)
                if rng.random() < 0.2:
                    session.engine.cancel(reply)
                answer = session.answer(reply)
                stats = answer.done.stats
                for source, tokens in (("ram", stats.reused_ram), ("disk", stats.reused_disk)):
                    sources[source] += bool(tokens)
                sources["context"] += stats.reused_tokens > 10 and not stats.reused_ram and not stats.reused_disk
                assert session.engine.snapshot().memory.snapshots_disk <= 550_000
                if answer.reason is FinishReason.CANCELLED:
                    continue
                key = tuple(turns)
                if key not in alone:
                    alone[key] = fresh(path, turns, ONE, modes=OFF)
                assert answer.text == alone[key], f"chat {chat}, {len(turns)} turns"
                if rng.random() < 0.5:
                    turns += [answer.text, MORE] if len(turns) < 7 else []
    assert min(sources.values()) > 1, sources
