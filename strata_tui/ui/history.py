"""The engine panel's short memory: rates sampled with each refresh, for the sparklines."""

from __future__ import annotations

from collections import deque

from ..engine.events import EngineState, Snapshot

SAMPLES = 240
_ACTIVE = (EngineState.PROMPT, EngineState.DECODE)


class RateHistory:
    """The last samples of hit rate and bytes copied while a reply runs. None: nothing to measure."""

    def __init__(self, samples: int = SAMPLES) -> None:
        self.hit_rate: deque[float | None] = deque(maxlen=samples)
        self.copied: deque[float | None] = deque(maxlen=samples)

    def add(self, snapshot: Snapshot) -> None:
        """Takes one sample; nothing is recorded while the engine rests."""
        if snapshot.state in _ACTIVE:
            self.hit_rate.append(snapshot.rates.hit_rate)
            self.copied.append(snapshot.rates.bytes_per_second)

    def clear(self) -> None:
        """Forgets everything: another model was opened."""
        self.hit_rate.clear()
        self.copied.clear()
