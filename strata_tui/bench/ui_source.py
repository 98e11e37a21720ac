"""A stand-in for the engine that writes a given text at a given rate, for measuring the screen alone."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from ..engine.counters import Counters, LiveRates, MemoryReport, PhaseCounters, ReplyStats
from ..engine.events import (
    EngineState,
    Event,
    FinishReason,
    Loaded,
    Measured,
    Message,
    ModelInfo,
    ModesChanged,
    PlanLine,
    PromptProgress,
    ReplyDone,
    Sampling,
    Snapshot,
    TextDelta,
)
from ..engine.modes import Modes, ModesState, SwitchState
from ..engine.outbox import Outbox

TOKEN_CHARS = 4
CONTEXT = 16_384
_WORDS = (
    "the a of expert slot router memory layer token reads writes keeps finds and with from under over stays warm cold "
    "first second *often* **never** `hits` `misses` because while after before between without every other"
).split()


def prose(tokens: int, seed: int = 1) -> str:
    """Paragraphs of about `tokens` tokens together."""
    rng = random.Random(seed)
    text = ""
    while len(text) < tokens * TOKEN_CHARS:
        sentences = (" ".join(rng.choices(_WORDS, k=rng.randint(6, 16))) for _ in range(rng.randint(2, 6)))
        text += " ".join(f"{s[0].upper()}{s[1:]}." for s in sentences) + "\n\n"
    return text


def code(tokens: int, seed: int = 1) -> str:
    """One fence of Python of about `tokens` tokens."""
    rng = random.Random(seed)
    text = "```python\n"
    while len(text) < tokens * TOKEN_CHARS:
        number = rng.randrange(1000)
        text += (
            f"def function_{number}(slots: list[int], limit: int = {number}) -> dict[str, int]:\n"
            f'    """Count what is kept of {number}."""\n'
            f"    found = {{name: value for name, value in enumerate(slots) if value > {number}}}\n"
            f"    if len(found) > limit:  # the rest comes later\n"
            f'        raise ValueError(f"{{len(found)}} of {number}")\n'
            f"    return found\n\n"
        )
    return text + "```\n"


class ScriptedEngine:
    """Has the Engine's methods. `started` and `ended`: of the last reply, on the monotonic clock."""

    def __init__(self, text: str, rate: float) -> None:
        self._tokens = [text[i : i + TOKEN_CHARS] for i in range(0, len(text), TOKEN_CHARS)]
        self._rate = rate
        self._outbox = Outbox()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._written = 0
        self._next = 1
        self._model = ModelInfo(
            "scripted", "scripted source", "none", "none", 1 << 34, 1 << 30, 15 << 30, 48, 128, 8, CONTEXT, CONTEXT
        )
        self.started = self.ended = 0.0
        switch = SwitchState("auto", "ram", "a script")
        self._shown = Snapshot(
            EngineState.IDLE,
            self._model,
            MemoryReport("none", arena=8 << 30, slots_used=1000, slots_total=1000, experts_total=6144),
            modes=ModesState(switch, switch, 1),
            context_total=CONTEXT,
        )

    def open(self, path: Path, *, context: int | None = None) -> None:
        """Is open at once."""
        self._outbox.emit(Loaded(self._model, (PlanLine("slots", 8 << 30, "a script"),)))

    def cancel_load(self) -> None:
        """There is nothing to stop."""

    def generate(self, messages: Sequence[Message], sampling: Sampling, *, go_on: bool = False, chat: str = "") -> int:
        """Starts writing the text."""
        self._next += 1
        self._stop.clear()
        self._thread = threading.Thread(target=self._write, args=(self._next,), daemon=True)
        self._thread.start()
        return self._next

    def forget(self, chats: Collection[str]) -> None:
        """There is nothing of them."""

    def measure(self, messages: Sequence[Message], *, texts: Sequence[str] = (), thinking: str | None = None) -> int:
        """Says that all of it is short."""
        self._next += 1
        self._outbox.emit(Measured(self._next, 40, (1,) * len(texts)))
        return self._next

    def cancel(self, reply_id: int | None = None) -> None:
        """Ends the text where it is."""
        self._stop.set()

    def set_modes(self, modes: Modes) -> None:
        """Says that the modes are what they were."""
        assert self._shown.modes is not None
        self._outbox.emit(ModesChanged(self._shown.modes))

    def snapshot(self) -> Snapshot:
        """Numbers that change as a real engine's do while it writes."""
        if not self.started or self.ended:
            return self._shown
        n = self._written
        phase = PhaseCounters(picks=n * 384, hits=n * 350, misses=n * 34, evictions=n * 30, bytes_copied=n << 24)
        counters = Counters(PhaseCounters(), phase, 0)
        seconds = time.monotonic() - self.started
        stats = replace(self._stats(seconds), counters=counters, context_used=40 + n, context_total=CONTEXT)
        rates = LiveRates(0.9 + n % 7 / 100, n / max(seconds, 0.1), None, float(n % 50 << 20), float(n % 90))
        return replace(
            self._shown, state=EngineState.DECODE, counters=counters, reply=stats, rates=rates, context_used=40 + n
        )

    def drain(self) -> list[Event]:
        """As the Engine's."""
        return self._outbox.drain()

    def wait_events(self, timeout: float) -> bool:
        """As the Engine's."""
        return self._outbox.wait(timeout)

    def close(self, timeout: float = 10.0) -> None:
        """Ends the text."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def _write(self, reply: int) -> None:
        self._outbox.emit(PromptProgress(reply, 40, 40))
        self._written, self.ended, self.started = 0, 0.0, time.monotonic()
        for number, token in enumerate(self._tokens):
            wait = self.started + number / self._rate - time.monotonic()
            if self._stop.wait(max(0.0, wait)):
                break
            self._outbox.emit(TextDelta(reply, token))
            self._written += 1
        self.ended = time.monotonic()
        reason = FinishReason.CANCELLED if self._stop.is_set() else FinishReason.STOP
        self._outbox.emit(ReplyDone(reply, reason, self._stats(self.ended - self.started)))

    def _stats(self, seconds: float) -> ReplyStats:
        return ReplyStats(
            prompt_tokens=40,
            reply_tokens=self._written,
            prompt_seconds=0.1,
            first_token_seconds=0.2,
            decode_seconds=seconds,
            model=self._model.name,
        )
