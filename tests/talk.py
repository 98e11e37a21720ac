"""Drives an Engine in tests: opens, asks, and collects events until something ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from strata_tui.engine.engine import Engine, EngineOptions
from strata_tui.engine.events import (
    Event,
    FinishReason,
    Loaded,
    LoadFailed,
    Message,
    Notice,
    ReplyDone,
    Sampling,
    TextDelta,
)

GREEDY = Sampling(temperature=0, repeat_penalty=1.0, max_tokens=24)
PATIENCE = 60.0  # seconds until a test gives up waiting; no test depends on how long anything takes


@dataclass
class Answer:
    """A reply as its events told it."""

    events: list[Event] = field(default_factory=list)

    @property
    def done(self) -> ReplyDone:
        ends = [e for e in self.events if isinstance(e, ReplyDone)]
        assert len(ends) == 1, "a reply ends once"
        return ends[0]

    @property
    def reason(self) -> FinishReason:
        return self.done.reason

    @property
    def text(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, TextDelta))

    @property
    def notices(self) -> list[str]:
        return [e.text for e in self.events if isinstance(e, Notice)]


class Talk:
    """One engine on the CPU."""

    def __init__(self, options: EngineOptions) -> None:
        self.engine = Engine(options)
        self.seen: list[Event] = []  # every event so far
        self._waiting: list[Event] = []

    def wait(self, until: Callable[[Event], bool]) -> list[Event]:
        """Events up to the first that fits; those that came with it, after it, stay for the next call."""
        end = time.monotonic() + PATIENCE
        got: list[Event] = []
        while True:
            for i, event in enumerate(self._waiting):
                if until(event):
                    got += self._waiting[: i + 1]
                    del self._waiting[: i + 1]
                    return got
            got += self._waiting
            self._waiting.clear()
            assert time.monotonic() < end, f"nothing fitting came; last events: {got[-5:]}"
            self.engine.wait_events(1.0)
            fresh = self.engine.drain()
            self.seen += fresh
            self._waiting += fresh

    def open(self, path: Path) -> Loaded | LoadFailed:
        self.engine.open(path)
        return self.loaded()

    def loaded(self) -> Loaded | LoadFailed:
        last = self.wait(lambda e: isinstance(e, Loaded | LoadFailed))[-1]
        assert isinstance(last, Loaded | LoadFailed)
        return last

    def ask(self, *turns: str, sampling: Sampling = GREEDY, system: str = "", chat: str = "") -> Answer:
        """`turns`: user, assistant, user, ..."""
        return self.answer(self.engine.generate(messages(*turns, system=system), sampling, chat=chat))

    def answer(self, reply_id: int) -> Answer:
        return Answer(self.wait(lambda e: isinstance(e, ReplyDone) and e.reply_id == reply_id))


def messages(*turns: str, system: str = "") -> list[Message]:
    first = [Message("system", system)] if system else []
    return first + [Message("assistant" if i % 2 else "user", text) for i, text in enumerate(turns)]


@contextmanager
def talk(model: Path | None = None, **options: object) -> Iterator[Talk]:
    """An engine on the CPU with one thread, closed at the end; `model` is opened.

    Without flash attention: llama.cpp's CPU kernel for it rounds differently from 64 tokens on, so a text read in two
    parts would not give the very same logits as in one.
    """
    defaults: dict[str, object] = {"gpu": -1, "threads": 1, "flash_attention": False}
    session = Talk(EngineOptions(**(defaults | options)))  # type: ignore[arg-type]
    try:
        if model is not None:
            opened = session.open(model)
            assert isinstance(opened, Loaded), opened
        yield session
    finally:
        session.engine.close()


def fresh(model: Path, turns: Sequence[str], sampling: Sampling = GREEDY, *, chat: str = "", **options: object) -> str:
    """The reply's text from an engine that was just started."""
    with talk(model, **options) as session:
        return session.ask(*turns, sampling=sampling, chat=chat).text
