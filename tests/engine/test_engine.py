"""The engine on small random models: loads, replies, prefix reuse, queue, limits, switches, failures."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import models
import pytest
from model_fixtures import TinyModel
from talk import GREEDY, Answer, Talk, fresh, messages, talk

from strata_tui.engine.chat_format import ChatFormat
from strata_tui.engine.counters import Counters
from strata_tui.engine.engine import Engine, EngineOptions
from strata_tui.engine.events import (
    EngineState,
    FinishReason,
    Loaded,
    LoadFailed,
    LoadProgress,
    ModesChanged,
    PromptProgress,
    ReplyDone,
    Sampling,
    TextDelta,
)
from strata_tui.engine.llama import FLASH_OFF, LowLevel
from strata_tui.engine.modes import Modes, Pinning, StagerProfile
from strata_tui.errors import UserError

FIRST = "the people of water said that their expert could find a long way"
SECOND = "what did the first expert write about the arena"
ARCHITECTURES = ["qwen3moe", "qwen3moe_split", "gpt_oss", "deepseek2", "qwen3next", "grovemoe", "llama_dense"]


def shown(session: Talk, state: EngineState) -> None:
    assert session.engine.snapshot().state is state


def test_a_load_tells_its_progress_and_the_plan(tiny_model: TinyModel, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "engine.log"
    with talk(log=log) as session:
        shown(session, EngineState.EMPTY)
        loaded = session.open(tiny_model("qwen3moe"))
        assert isinstance(loaded, Loaded)
        told = [e for e in session.seen if isinstance(e, LoadProgress)]
        progress = [e for e in told if e.stage == "reading the trunk"]
        filling = [e for e in told if e.stage == "filling slots"]
        assert told == progress + filling
        assert ({e.unit for e in progress}, {e.unit for e in filling}) == ({"bytes"}, {"slots"})
        for part in (progress, filling):
            assert [e.done for e in part] == sorted(e.done for e in part)
            assert part[-1].done == part[-1].total > 0
        assert filling[-1].total == 22
        about = loaded.model
        assert (about.architecture, about.layers, about.experts_per_layer, about.experts_used) == ("qwen3moe", 4, 16, 4)
        assert about.context == about.context_trained == 1024
        assert progress[-1].total < about.trunk_bytes + 200_000 < about.trunk_bytes + about.expert_bytes
        lines = {line.label: line for line in loaded.plan}
        assert lines["trunk"].bytes == about.trunk_bytes
        assert lines["slots"].note.startswith("22 of 64 experts")
        shot = session.engine.snapshot()
        assert shot.state is EngineState.IDLE
        assert shot.model == about
        assert shot.memory.slots_total == shot.memory.slots_used == 22
        assert shot.counters == Counters(swaps=0)  # filling the slots is no reply's work
        assert shot.memory.arena == lines["slots"].bytes
        assert shot.memory.kv == lines["KV cache"].bytes == 1024 * 4 * 2 * (32 + 32) * 2
        assert (shot.memory.vram_used, shot.memory.vram_total, shot.memory.on_gpu) == (None, None, False)
        assert shot.modes is not None
        assert shot.modes.pinning.actual == "not applicable"
        session.ask(FIRST)
    text = log.read_text()
    for words in ("plan: slots: ", "22 of 64 experts", "self-test: ", "modes: ", "reply 1: ", "llama.cpp: "):
        assert words in text
    assert "slots: 22 filled evenly" in text
    assert not loaded.notices


def test_a_reply_and_its_numbers(tiny_model: TinyModel) -> None:
    with talk(tiny_model("qwen3moe"), batch=16) as session:
        answer = session.ask(FIRST)
        stats = answer.done.stats
        reading = [e for e in answer.events if isinstance(e, PromptProgress)]
        assert [e.done for e in reading] == [0, *range(16, stats.prompt_tokens, 16), stats.prompt_tokens]
        assert {e.total for e in reading} == {stats.prompt_tokens}
        assert isinstance(answer.events[-1], ReplyDone)
        kinds = [type(e) for e in answer.events if isinstance(e, PromptProgress | TextDelta)]
        assert kinds == sorted(kinds, key=[PromptProgress, TextDelta].index)
        assert answer.reason in (FinishReason.STOP, FinishReason.LENGTH)
        assert stats.reused_tokens == 0
        assert stats.reply_tokens == 24 or answer.reason is FinishReason.STOP
        assert stats.context_total == 1024
        assert None not in (stats.prompt_rate, stats.decode_rate, stats.first_token_seconds)
        # every round of one token picks 4 experts in each of 4 layers
        decode = stats.counters.decode
        assert decode.picks == decode.rounds * 16
        assert decode.rounds == stats.reply_tokens - (answer.reason is FinishReason.LENGTH)  # the last is not read
        assert decode.hits + decode.misses == decode.picks
        assert decode.misses > 0 < decode.hits
        assert len(stats.layers) == 4
        assert [sum(n) for n in zip(*stats.layers, strict=True)] == [decode.picks, decode.hits]
        assert stats.counters.prompt.rounds == len(reading) - 1
        assert stats.context_used == stats.prompt_tokens + decode.rounds
        again = session.ask(FIRST, answer.text, SECOND).done.stats
        shot = session.engine.snapshot()
        assert shot.counters == Counters(
            stats.counters.prompt + again.counters.prompt, stats.counters.decode + again.counters.decode, swaps=0
        )
        assert shot.reply == again
        assert shot.context_used == again.context_used


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_second_turn_equals_a_fresh_starts(name: str, tiny_model: TinyModel) -> None:
    path = tiny_model(name)
    with talk(path) as session:
        first = session.ask(FIRST)
        second = session.ask(FIRST, first.text, SECOND)
    assert second.text
    assert second.text == fresh(path, [FIRST, first.text, SECOND])
    assert second.done.stats.reused_tokens > 0 or second.notices


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_edited_turn_equals_a_fresh_starts(name: str, tiny_model: TinyModel) -> None:
    path = tiny_model(name)
    edited = FIRST.replace("long", "first")
    with talk(path) as session:
        session.ask(FIRST)
        second = session.ask(edited)
        third = session.ask(FIRST)
    assert second.text == fresh(path, [edited])
    assert third.text == fresh(path, [FIRST])
    if name == "qwen3next":
        assert "cannot be taken back" in second.notices[0]
        assert second.done.stats.reused_tokens == 0
    else:
        assert not second.notices
        assert 0 < second.done.stats.reused_tokens < second.done.stats.prompt_tokens


def test_the_same_question_again_reads_one_token(tiny_model: TinyModel) -> None:
    with talk(tiny_model("qwen3moe")) as session:
        first, second = session.ask(FIRST), session.ask(FIRST)
    assert second.text == first.text
    assert second.done.stats.reused_tokens == second.done.stats.prompt_tokens - 1


def test_a_sliding_window_that_moved_on_is_read_again(tiny_model: TinyModel) -> None:
    path = tiny_model("gpt_oss")
    long = " ".join([FIRST] * 24)
    edited = FIRST + " or not" + long[len(FIRST) :]
    with talk(path, batch=32) as session:
        assert session.ask(long).done.stats.prompt_tokens > 300
        second = session.ask(edited)
    assert "sliding window" in second.notices[0]
    assert second.text == fresh(path, [edited], batch=32)


def test_a_hybrid_model_reuses_what_is_only_longer(tiny_model: TinyModel) -> None:
    # a reply that is cut short is followed by its own tokens again, so nothing has to be taken back
    sampling = Sampling(temperature=0, max_tokens=1)
    with talk(tiny_model("qwen3next")) as session:
        first = session.ask(FIRST, sampling=sampling)
        kept = session.engine.snapshot().context_used
        second = session.ask(FIRST, "", SECOND, sampling=sampling)
    assert first.done.stats.prompt_tokens == kept
    assert second.done.stats.reused_tokens == kept
    assert not second.notices


def test_replies_queue_and_come_in_order(tiny_model: TinyModel) -> None:
    with talk(tiny_model("qwen3moe")) as session:
        ids = [session.engine.generate(messages(text), GREEDY) for text in (FIRST, SECOND, FIRST)]
        answers = [session.answer(reply_id) for reply_id in ids]
    assert ids == sorted(set(ids))
    for reply_id, answer in zip(ids, answers, strict=True):
        mine = [e for e in answer.events if isinstance(e, PromptProgress | TextDelta | ReplyDone)]
        assert {e.reply_id for e in mine} == {reply_id}
    assert answers[0].text == answers[2].text != answers[1].text


def test_a_prompt_that_is_too_long(tiny_model: TinyModel) -> None:
    with talk(tiny_model("qwen3moe"), context=256) as session:
        answer = session.ask(" ".join([FIRST] * 30))
        assert answer.reason is FinishReason.TOO_LONG
        tokens = answer.done.stats.prompt_tokens
        assert tokens > 256
        assert f"takes {tokens} tokens" in answer.done.message
        assert "holds 256" in answer.done.message
        assert "--ctx" in answer.done.message
        assert not answer.text
        assert session.ask(FIRST).text == fresh(tiny_model("qwen3moe"), [FIRST], context=256)


def test_a_context_that_fills_up_ends_the_reply(tiny_model: TinyModel) -> None:
    with talk(tiny_model("qwen3moe"), context=256) as session:
        answers = [
            session.ask(" ".join([FIRST] * n), sampling=Sampling(temperature=1.5, top_k=0, seed=n)) for n in (9, 10, 11)
        ]
    full = [a for a in answers if "full" in a.done.message]
    assert full
    for answer in full:
        assert answer.reason is FinishReason.FULL
        assert answer.done.stats.context_used == 256
        assert answer.done.stats.prompt_tokens + answer.done.stats.reply_tokens == 257


def test_a_limit_of_tokens(tiny_model: TinyModel) -> None:
    with talk(tiny_model("qwen3moe")) as session:
        for limit in (0, 1, 3):
            answer = session.ask(FIRST, sampling=Sampling(temperature=0, max_tokens=limit))
            assert answer.reason is FinishReason.LENGTH
            assert answer.done.stats.reply_tokens == limit
            assert f"limit of {limit} tokens" in answer.done.message


def test_sampling(tiny_model: TinyModel) -> None:
    def ask(session: Talk, **values: object) -> str:
        return session.ask(FIRST, sampling=Sampling(**({"max_tokens": 24} | values))).text  # type: ignore[arg-type]

    with talk(tiny_model("qwen3moe")) as session:
        greedy = ask(session, temperature=0)
        assert ask(session, temperature=0, seed=5) == greedy
        hot = {"temperature": 1.5, "top_k": 0, "min_p": 0.0, "top_p": 1.0}
        assert ask(session, **hot, seed=5) == ask(session, **hot, seed=5)
        assert ask(session, **hot, seed=5) != ask(session, **hot, seed=6)
        assert ask(session, temperature=1.5, top_k=1) == greedy
        assert ask(session, temperature=0, repeat_penalty=5.0) != greedy


def test_without_a_model_a_reply_says_so() -> None:
    with talk() as session:
        answer = session.ask("Hello")
    assert answer.reason is FinishReason.ERROR
    assert "No model is open" in answer.done.message


def test_a_conversation_the_template_refuses_ends_and_the_next_works(tiny_model: TinyModel) -> None:
    with talk(tiny_model("qwen3moe")) as session:
        assert session.ask().reason is not FinishReason.ERROR  # only the reply's opening
        answer = session.answer(session.engine.generate([], Sampling(max_tokens=-1)))
        assert answer.reason is FinishReason.LENGTH
        assert session.ask(FIRST).text == fresh(tiny_model("qwen3moe"), [FIRST])


def test_another_model_takes_the_place_of_the_open_one(tiny_model: TinyModel) -> None:
    with talk(tiny_model("qwen3moe")) as session:
        session.ask(FIRST)
        assert isinstance(session.open(tiny_model("gpt_oss")), Loaded)
        shot = session.engine.snapshot()
        assert shot.model is not None
        assert shot.model.architecture == "gpt-oss"
        assert shot.counters == Counters(swaps=0)
        assert shot.context_used == 0
        assert shot.reply is None
        assert session.ask(FIRST).text == fresh(tiny_model("gpt_oss"), [FIRST])


@pytest.mark.parametrize("pool", [2, 16])
def test_switches_change_no_text(pool: int, tiny_model: TinyModel) -> None:
    path = tiny_model("qwen3moe")
    expected = fresh(path, [FIRST], pool_buffers=pool)
    with talk(path, pool_buffers=pool, modes=Modes(Pinning.OFF, StagerProfile.SSD)) as session:
        before = session.engine.snapshot().modes
        assert before is not None
        assert (before.stager.wanted, before.stager.actual) == ("ssd", "ssd")
        reply_id = session.engine.generate(messages(FIRST), GREEDY)
        answer = Answer(session.wait(lambda e: isinstance(e, TextDelta)))
        session.engine.set_modes(Modes(Pinning.AUTO, StagerProfile.RAM))
        answer.events += session.answer(reply_id).events
        changed = [e for e in answer.events if isinstance(e, ModesChanged)]
        state = changed[0].state
        assert (state.stager.wanted, state.stager.actual, state.stager.pending) == ("ram", "ram", False)
        assert state.pinning.wanted == "auto"
        assert state.pool_generation > before.pool_generation
        assert session.engine.snapshot().modes == state
    assert answer.text == expected


def test_switches_of_an_idle_engine_change_at_once(tiny_model: TinyModel) -> None:
    with talk(tiny_model("qwen3moe")) as session:
        session.engine.set_modes(Modes(Pinning.ON, StagerProfile.SSD))
        changed = session.wait(lambda e: isinstance(e, ModesChanged))[-1]
        assert isinstance(changed, ModesChanged)
        assert changed.state.stager.actual == "ssd"
        assert changed.state.pinning.wanted == "on"
        assert changed.state.pinning.actual == "not applicable"


def test_switches_wanted_before_a_model_is_open_are_kept_for_it(tiny_model: TinyModel) -> None:
    with talk() as session:
        session.engine.set_modes(Modes(stager=StagerProfile.SSD))
        assert session.engine.snapshot().modes is None
        session.open(tiny_model("qwen3moe"))
        state = session.engine.snapshot().modes
        assert state is not None
        assert (state.stager.wanted, state.stager.actual) == ("ssd", "ssd")


BROKEN = {
    "not_gguf": (models.not_gguf, "GGUF"),
    "truncated_header": (models.truncated_header, "cut short"),
    "truncated_data": (models.truncated_data, "cut short"),
    "unknown_architecture": (models.unknown_architecture, "unknown model architecture: 'zzz-unheard-of'"),
    "missing_shard": (models.missing_shard, "missing"),
    "big_endian": (models.big_endian, "endian"),
    "old_version": (models.old_version, "version 1"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_load_that_fails_says_why_in_one_sentence(kind: str, tmp_path: Path, tiny_model: TinyModel) -> None:
    build, why = BROKEN[kind]
    path = build(tmp_path / "broken.gguf")
    with talk() as session:
        failed = session.open(path)
        assert isinstance(failed, LoadFailed)
        assert not failed.cancelled
        assert path.stem in failed.message
        assert why in failed.message
        assert "\n" not in failed.message
        assert failed.message.endswith(".")
        shown(session, EngineState.FAILED)
        assert isinstance(session.open(tiny_model("llama_dense")), Loaded)
        shown(session, EngineState.IDLE)


def test_a_missing_file_and_impossible_options_fail_too(tiny_model: TinyModel, tmp_path: Path) -> None:
    with talk(slots=3) as session:
        failed = session.open(tmp_path / "nothing.gguf")
        assert isinstance(failed, LoadFailed)
        assert "nothing.gguf" in failed.message
        failed = session.open(tiny_model("qwen3moe"))
        assert isinstance(failed, LoadFailed)
        assert "--slots 3 is too few: this model needs 8 or more" in failed.message
    with talk(ram_gib=0.0001) as session:
        failed = session.open(tiny_model("qwen3moe"))
        assert isinstance(failed, LoadFailed)
        assert "--ram-gib" in failed.message
    with talk(gpu=7) as session:
        failed = session.open(tiny_model("qwen3moe"))
        assert isinstance(failed, LoadFailed)
        assert "There is no CUDA card 7" in failed.message


def test_a_file_that_shrinks_ends_the_reply_and_nothing_else(tiny_model: TinyModel, tmp_path: Path) -> None:
    whole = tiny_model("qwen3moe").read_bytes()
    path = tmp_path / "shrinking.gguf"
    path.write_bytes(whole)
    with talk(path) as session:
        first = session.ask(FIRST)
        os.truncate(path, len(whole) // 4)
        failed = session.ask(SECOND)
        assert failed.reason is FinishReason.ERROR
        assert "could not be read" in failed.done.message
        assert "shrinking.gguf" in failed.done.message
        with path.open("r+b") as file:
            file.write(whole)
        assert session.ask(FIRST).text == first.text
        assert session.engine.snapshot().state is EngineState.IDLE


def test_an_unexpected_error_ends_the_reply_and_nothing_else(tiny_model: TinyModel) -> None:
    with talk(tiny_model("qwen3moe")) as session:
        first = session.ask(FIRST)
        failed = session.ask(FIRST, sampling=Sampling(temperature="hot"))  # type: ignore[arg-type]
        assert failed.reason is FinishReason.ERROR
        assert failed.done.message.startswith("The reply failed: ")
        assert session.ask(FIRST).text == first.text


def test_a_log_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="log"):
        Engine(EngineOptions(log=tmp_path / "file" / "engine.log"))


def test_close_ends_everything(tiny_model: TinyModel) -> None:
    before = set(threading.enumerate())
    session = Talk(EngineOptions(gpu=-1, threads=1))
    assert isinstance(session.open(tiny_model("qwen3moe")), Loaded)
    ids = [session.engine.generate(messages(FIRST), Sampling(temperature=0)) for _ in range(3)]
    session.engine.close()
    session.engine.close()
    ends = [e for e in session.engine.drain() if isinstance(e, ReplyDone)]
    assert sorted(e.reply_id for e in ends) == ids
    assert all(e.reason is FinishReason.CANCELLED for e in ends[1:])
    assert session.engine.snapshot().state is EngineState.CLOSED
    assert set(threading.enumerate()) <= before
    with pytest.raises(RuntimeError):
        session.engine.generate(messages(FIRST), GREEDY)


def test_the_demo_model_writes_what_plain_llama_cpp_writes(demo_model: Path) -> None:
    question = "Why is the sky blue?"
    with talk(demo_model, context=512) as session:
        answer = session.ask(question)
        decode = answer.done.stats.counters.decode
        assert decode.hits > 0 < decode.misses
        assert decode.evictions > 0
        memory = session.engine.snapshot().memory
        assert 0 < memory.slots_used <= memory.slots_total < memory.experts_total
    with LowLevel(demo_model, tier=False, context=512, flash=FLASH_OFF) as plain:
        logits = plain.decode(ChatFormat(plain.model).prompt(messages(question)).tokens)
        text = b""
        for _ in range(answer.done.stats.reply_tokens):
            token = int(logits.argmax())
            text += plain.model.piece(token)
            logits = plain.decode([token])
    assert len(answer.text) > 40
    assert answer.text == text.decode()
