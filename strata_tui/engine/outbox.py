"""Events from the engine's threads to whoever reads them."""

from __future__ import annotations

import threading

from .events import Event


class Outbox:
    """Keeps events in order until they are drained. Any thread; the lock is held for moments only."""

    def __init__(self) -> None:
        self._filled = threading.Condition()
        self._events: list[Event] = []

    def emit(self, event: Event) -> None:
        with self._filled:
            self._events.append(event)
            self._filled.notify_all()

    def drain(self) -> list[Event]:
        with self._filled:
            events, self._events = self._events, []
            return events

    def wait(self, timeout: float) -> bool:
        """Sleeps until an event is there, at most `timeout` seconds; whether one is."""
        with self._filled:
            return self._filled.wait_for(lambda: bool(self._events), timeout)
