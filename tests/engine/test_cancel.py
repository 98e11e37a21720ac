"""Cancel wherever the engine may be; what comes next is as if nothing had happened."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from model_fixtures import TinyModel
from talk import GREEDY, fresh, messages, talk

from strata_tui.engine.events import (
    EngineState,
    Event,
    FinishReason,
    Loaded,
    LoadFailed,
    LoadProgress,
    PromptProgress,
    ReplyDone,
    Sampling,
    TextDelta,
)
from strata_tui.engine.job import Hooks, Job
from strata_tui.engine.loading import LoadCancelled, LoadControl
from strata_tui.engine.modes import Modes, Residency
from strata_tui.engine.opening import OpenModel, open_model
from strata_tui.engine.options import EngineOptions
from strata_tui.engine.reply import Reply

LOG = logging.Logger("test")
TURN = "the people of water said that their expert could find a long way"
LONG = " ".join([TURN] * 8)
NEXT = "what did the first expert write about the arena"
KINDS = ["qwen3moe", "gpt_oss", "qwen3next", "deepseek2", "llama_dense"]  # attention, window, hybrid, latent, dense


@contextmanager
def opened(path: Path, **options: object) -> Iterator[OpenModel]:
    values = EngineOptions(gpu=-1, threads=1, flash_attention=False, **options)  # type: ignore[arg-type]
    model = open_model(path, values, Modes(), lambda _: None, LoadControl(), LOG)
    try:
        yield model
    finally:
        model.close()


@dataclass
class Run:
    """One reply on this thread, which is aborted inside llama_decode in the round numbered `abort_in`, from 0 on."""

    model: OpenModel
    abort_in: int | None = None
    events: list[Event] = field(default_factory=list)
    rounds: int = 0
    cancelled: bool = False

    def between_rounds(self) -> None:
        if self.rounds == self.abort_in:  # the round that comes now begins, and is stopped within
            self.model.tier.cancel(True)
            self.aborting = True
        self.rounds += 1

    aborting: bool = False

    def is_cancelled(self) -> bool:
        # as the worker's flag, but seen only after the decode that it stops
        if self.aborting:
            self.cancelled = True
        return self.cancelled

    def __call__(self, *turns: str, sampling: Sampling = GREEDY) -> ReplyDone:
        self.model.tier.cancel(False)
        hooks = Hooks(self.events.append, self.is_cancelled, self.between_rounds, lambda: None)
        return Reply(Job(1, tuple(messages(*turns)), sampling), self.model, hooks, LOG).run()

    @property
    def text(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, TextDelta))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("abort_in", [0, 1, 3, 6, 9])
def test_an_aborted_round_leaves_no_trace(name: str, abort_in: int, tiny_model: TinyModel) -> None:
    """The prompt takes rounds 0 to 3, the later ones are of the reply."""
    path = tiny_model(name)
    with opened(path, batch=32) as model:
        run = Run(model, abort_in)
        done = run(LONG)
        assert done.reason is FinishReason.CANCELLED
        assert run.rounds == abort_in + 1
        assert (done.stats.reply_tokens > 0) == (abort_in >= 4)
        known = len(model.prefix.tokens)
        assert known == (0 if name == "qwen3next" else model.context.pos_max() + 1)
        again = Run(model)
        assert again(LONG).stats.reused_tokens == min(known, done.stats.prompt_tokens - 1)
        other = Run(model)
        other(TURN, "", NEXT)
    assert again.text == fresh(path, [LONG], batch=32)
    assert other.text == fresh(path, [TURN, "", NEXT], batch=32)


@pytest.mark.parametrize("abort_in", [4, 6, 9])
def test_an_aborted_round_while_experts_are_swapped(abort_in: int, tiny_model: TinyModel) -> None:
    path = tiny_model("qwen3moe")
    with opened(path, batch=32, slots=24, copy_delay_us=500) as model:
        model.apply(Modes(residency=Residency.ADAPTIVE))
        before = Run(model)
        before(NEXT)  # homes no longer are those that this asks for most
        run = Run(model, abort_in)
        assert run(LONG).reason is FinishReason.CANCELLED
        assert run.rounds == abort_in + 1
        assert model.counters().swaps
        model.tier.verify(100, abort_in)
        again = Run(model)
        again(LONG)
        model.tier.verify(100, abort_in)
    assert before.text == fresh(path, [NEXT], batch=32)
    assert again.text == fresh(path, [LONG], batch=32)


@pytest.mark.parametrize("name", KINDS)
def test_cancel_while_the_prompt_is_read(name: str, tiny_model: TinyModel) -> None:
    path = tiny_model(name)
    # delayed copies and small batches: the prompt takes long enough to be interrupted
    with talk(path, batch=8, copy_delay_us=3000) as session:
        reply_id = session.engine.generate(messages(" ".join([LONG] * 3)), GREEDY)
        session.wait(lambda e: isinstance(e, PromptProgress) and e.done > 0)
        session.engine.cancel(reply_id)
        answer = session.answer(reply_id)
        assert answer.reason is FinishReason.CANCELLED
        assert not answer.text
        assert session.ask(TURN).text == fresh(path, [TURN], batch=8)
        assert session.engine.snapshot().state is EngineState.IDLE


def test_cancel_stops_within_a_round(tiny_model: TinyModel) -> None:
    # one round reads all of the prompt; its copies are delayed by more than a second together
    with talk(tiny_model("qwen3moe"), copy_delay_us=50_000) as session:
        reply_id = session.engine.generate(messages(LONG), GREEDY)
        session.wait(lambda e: isinstance(e, PromptProgress))
        session.engine.cancel(reply_id)
        answer = session.answer(reply_id)
        assert answer.reason is FinishReason.CANCELLED
        assert answer.done.stats.context_used == 0


@pytest.mark.parametrize("name", KINDS)
def test_cancel_while_the_reply_is_written(name: str, tiny_model: TinyModel) -> None:
    path = tiny_model(name)
    with talk(path, copy_delay_us=3000) as session:
        reply_id = session.engine.generate(messages(TURN), Sampling(temperature=2, top_k=0, min_p=0.0, seed=1))
        session.wait(lambda e: isinstance(e, TextDelta))
        session.engine.cancel()
        answer = session.answer(reply_id)
        assert answer.reason in (FinishReason.CANCELLED, FinishReason.STOP)
        assert answer.done.stats.reply_tokens > 0
        assert session.ask(TURN, "", NEXT).text == fresh(path, [TURN, "", NEXT])


def test_cancel_in_the_queue(tiny_model: TinyModel) -> None:
    with talk(tiny_model("qwen3moe"), batch=8, copy_delay_us=3000) as session:
        first, second, third = (session.engine.generate(messages(LONG), GREEDY) for _ in range(3))
        session.wait(lambda e: isinstance(e, PromptProgress))  # the first has begun
        session.engine.cancel(second)
        waiting = session.wait(lambda e: isinstance(e, ReplyDone))
        assert isinstance(waiting[-1], ReplyDone)
        assert (waiting[-1].reply_id, waiting[-1].reason) == (second, FinishReason.CANCELLED)
        session.engine.cancel()
        ends = {
            e.reply_id: e.reason
            for _ in range(2)
            for e in session.wait(lambda e: isinstance(e, ReplyDone))
            if isinstance(e, ReplyDone)
        }
        assert ends == {first: FinishReason.CANCELLED, third: FinishReason.CANCELLED}
        assert session.ask(TURN).reason is not FinishReason.CANCELLED


def test_a_late_cancel_does_not_hit_the_next_reply(tiny_model: TinyModel) -> None:
    with talk(tiny_model("qwen3moe")) as session:
        answer = session.ask(TURN)
        session.engine.cancel(answer.done.reply_id)
        session.engine.cancel()
        session.engine.cancel(999)
        again = session.ask(TURN)
        assert again.text == answer.text
        assert again.reason is answer.reason


@pytest.mark.parametrize("name", ["qwen3moe", "qwen3moe_split", "llama_dense"])
def test_cancel_while_the_trunk_is_read(name: str, tiny_model: TinyModel) -> None:
    control = LoadControl()
    seen: list[LoadProgress] = []

    def emit(event: LoadProgress) -> None:
        seen.append(event)
        control.cancel()

    values = EngineOptions(gpu=-1, threads=1)
    before = threading.active_count()
    with pytest.raises(LoadCancelled):
        open_model(tiny_model(name), values, Modes(), emit, control, LOG)
    assert seen[0].done < seen[0].total
    assert threading.active_count() == before
    with opened(tiny_model(name)) as model:
        assert Run(model)(TURN).reason is not FinishReason.ERROR


def test_cancel_while_the_slots_are_filled(tiny_model: TinyModel) -> None:
    control = LoadControl()
    filling: list[LoadProgress] = []

    def emit(event: LoadProgress) -> None:
        if event.unit == "slots":
            filling.append(event)
            control.cancel()

    before = threading.active_count()
    with pytest.raises(LoadCancelled):
        open_model(tiny_model("qwen3moe"), EngineOptions(gpu=-1, threads=1), Modes(), emit, control, LOG)
    assert [e.stage for e in filling] == ["filling slots"]  # it ends with the first step
    assert 0 < filling[0].done < filling[0].total
    assert threading.active_count() == before


def test_cancelled_loads_end_and_the_next_one_works(tiny_model: TinyModel) -> None:
    with talk() as session:
        for name in ("qwen3moe", "gpt_oss", "deepseek2"):
            session.engine.open(tiny_model(name))
        session.engine.cancel_load()
        ends = [session.loaded() for _ in range(3)]
        failed = [e for e in ends if isinstance(e, LoadFailed)]
        assert len(failed) >= 2  # the first may have been through already
        assert all(e.cancelled and "cancelled" in e.message for e in failed)
        assert isinstance(session.open(tiny_model("llama_dense")), Loaded)
        assert session.ask(TURN).text
