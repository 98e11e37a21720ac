"""Long talks with drafts: turns of all kinds, and at the end the memory and the text of a run that was just started."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from model_fixtures import TinyModel
from speculating import memory_hash
from talk import messages

from strata_tui.engine.counters import DraftCounters
from strata_tui.engine.events import Event, FinishReason, Sampling, TextDelta
from strata_tui.engine.job import Hooks, Job
from strata_tui.engine.loading import LoadControl
from strata_tui.engine.modes import Drafting, Modes
from strata_tui.engine.opening import OpenModel, open_model
from strata_tui.engine.options import EngineOptions
from strata_tui.engine.reply import Reply

LOG = logging.Logger("test")
TURN = "the people of water said that their expert could find a long way"
ECHO = "one two one two one two one two one two"  # whose end the look-up has seen before
TURNS, CONTEXT, MOST = 150, 256, 12
ALWAYS = Modes(draft=Drafting.FOUR)

# name -> model, and whether its NextN heads draft (else the text so far does)
TALKS = {
    "attention, heads": ("glm4moe_echo", True),
    "chained heads, a window": ("step35", True),
    "hybrid with snapshots, heads": ("qwen35moe", True),
    "hybrid with replays, heads": ("qwen3next_nextn", True),
    "attention, look-up": ("qwen3moe", False),
    "hybrid, look-up": ("qwen3next", False),
}


@dataclass
class Native:
    """The extension's speculator, with a cancel that arrives while it is at work."""

    native: Any
    tier: Any
    when: str = ""  # "draft", "step": inside the next one; "": never
    arrived: bool = False

    def _call(self, name: str, *args: Any, **named: Any) -> Any:
        if self.when == name:
            self.when, self.arrived = "", True
            self.tier.cancel(True)
        return getattr(self.native, name)(*args, **named)

    def draft(self, *args: Any) -> Any:
        return self._call("draft", *args)

    def step(self, *args: Any, **named: Any) -> Any:
        drafts = args[2]
        return self._call("step", *args, **named) if drafts else self.native.step(*args, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)


@dataclass
class Talk:
    """Replies of one open model, one after the other, on this thread."""

    model: OpenModel
    native: Native
    heads: bool
    ends: Counter[str] = field(default_factory=Counter)

    def ask(self, turns: Sequence[str], sampling: Sampling, cancel: str = "") -> tuple[str, FinishReason]:
        """`cancel`: "", "queue", "draft" or "step"."""
        self.native.when, self.native.arrived = cancel if cancel != "queue" else "", False
        self.model.tier.cancel(False)
        events: list[Event] = []
        hooks = Hooks(events.append, lambda: cancel == "queue" or self.native.arrived, lambda: None, lambda: None)
        done = Reply(Job(1, tuple(messages(*turns)), sampling), self.model, hooks, LOG).run()
        assert done.reason is not FinishReason.ERROR, done.message
        if self.native.arrived:
            assert done.reason is FinishReason.CANCELLED
            self.ends[f"cancelled in {cancel}"] += 1
        self.ends[done.reason.value] += 1
        known = self.model.prefix.tokens
        assert self.model.context.pos_max() == len(known) - 1, "the memory holds what is believed"
        assert done.stats.context_used == len(known)
        return "".join(e.text for e in events if isinstance(e, TextDelta)), done.reason

    def drafts(self) -> DraftCounters:
        return self.model.speculation.counters()


@contextmanager
def opened(path: Path, heads: bool, modes: Modes = ALWAYS, slots: int | None = None) -> Iterator[Talk]:
    options = EngineOptions(
        gpu=-1, threads=1, flash_attention=False, context=CONTEXT, batch=64, lookup=not heads, slots=slots
    )
    model = open_model(path, options, modes, lambda _: None, LoadControl(), LOG)
    try:
        speculation: Any = model.speculation
        native = speculation._native = Native(speculation._native, model.tier)
        yield Talk(model, native, heads)
    finally:
        model.close()


@dataclass
class Person:
    """Who goes on with, edits and regenerates turns in some sessions."""

    rng: random.Random
    talk: Talk
    sessions: list[list[str]] = field(default_factory=lambda: [[], [], []])
    at: int = 0
    did: Counter[str] = field(default_factory=Counter)

    def words(self) -> str:
        text = ECHO if self.rng.random() < 0.5 else TURN
        return text[: self.rng.randrange(8, len(text))]

    def turn(self) -> None:
        rng = self.rng
        what = rng.choice(("next", "next", "edit", "regenerate", "switch", "fill", "modes"))
        self.did[what] += 1
        if what == "switch":
            self.at = rng.randrange(len(self.sessions))
        elif what == "modes":
            draft = rng.choice(list(Drafting))
            self.talk.model.apply(replace(ALWAYS, draft=draft))
        session = self.sessions[self.at]
        if what == "edit" and session:
            del session[rng.randrange(0, len(session), 2) :]
        if what == "regenerate" and session:
            session.pop()
        else:
            session.append(self.words())
        sampling = Sampling(temperature=0, repeat_penalty=1.0, max_tokens=rng.randrange(1, MOST))
        if what == "fill":  # until the context is full
            sampling = replace(sampling, max_tokens=None)
        cancel = rng.choice(("", "", "", "queue", "step", "draft" if self.talk.heads else "step"))
        text, reason = self.talk.ask(session, sampling, cancel)
        session.append(text)
        if what == "fill" or reason is FinishReason.TOO_LONG or len(" ".join(session)) > 400:
            session.clear()
        if what == "modes":
            self.talk.model.apply(ALWAYS)


@pytest.mark.parametrize("name", TALKS)
def test_150_mixed_turns_end_as_a_fresh_run_does(name: str, tiny_model: TinyModel) -> None:
    """KV length, a hash of all that the sequence's memory holds, and the text; half of the experts have no slot."""
    path, heads = tiny_model(TALKS[name][0]), TALKS[name][1]
    with opened(path, heads, slots=40) as talk:
        person = Person(random.Random(7), talk)
        for _ in range(TURNS):
            person.turn()
        drafts = talk.drafts()
        assert drafts.offered[0] > (100 if heads else 20) and 0 < drafts.accepted[0] < drafts.offered[0]
        assert all(n >= 10 for n in person.did.values()), person.did
        reached = {"length", "cancelled", "cancelled in step", *(["cancelled in draft"] if heads else [])}
        assert all(talk.ends[end] >= 3 for end in reached), talk.ends
        last = [TURN, "and they said", ECHO]
        sampling = Sampling(temperature=0, repeat_penalty=1.0, max_tokens=64)
        text, _ = talk.ask(last, sampling)
        tokens, state, drafted = list(talk.model.prefix.tokens), memory_hash(talk.model.context), talk.drafts() - drafts
        read_whole = talk.model.model.has_state  # else a part of it was in the memory, and heads begin in the middle
    with opened(path, heads) as alone:
        assert alone.ask(last, sampling)[0] == text
        assert alone.model.prefix.tokens == tokens
        assert memory_hash(alone.model.context) == state
        once = alone.drafts()
        assert (once.offered, once.accepted) == (drafted.offered, drafted.accepted) or not read_whole
    with opened(path, heads, Modes(draft=Drafting.OFF)) as plain:
        assert plain.ask(last, sampling)[0] == text, "and of one without drafts"
