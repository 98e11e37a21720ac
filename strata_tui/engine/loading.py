"""How a load says how far it is, and how it is stopped from another thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from .events import LoadProgress

PROGRESS_SECONDS = 0.05

Emit = Callable[[LoadProgress], None]


class LoadCancelled(Exception):
    """The load was stopped by cancel_load()."""


class LoadControl:
    """Stops a load from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop: Callable[[], object] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._stop is not None:
                self._stop()

    @contextlib.contextmanager
    def stopping(self, stop: Callable[[], object]) -> Iterator[None]:
        """While this lasts, a cancel calls `stop`, too, for what would not look at `cancelled` soon enough."""
        with self._lock:
            self._stop = stop
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._stop = None

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def check(self) -> None:
        if self._cancelled:
            raise LoadCancelled


class Throttle:
    """LoadProgress at most 20 times a second, and always at the end of a stage. `unit`: of done and total."""

    def __init__(self, stage: str, emit: Emit, unit: str = "bytes") -> None:
        self._stage, self._emit, self._unit = stage, emit, unit
        self._last = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last >= PROGRESS_SECONDS or done >= total:
            self._last = now
            self._emit(LoadProgress(self._stage, done, total, self._unit))
