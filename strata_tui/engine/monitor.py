"""Publishes immutable snapshots of the engine, a few times a second, from its own thread."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from logging import Logger
from typing import TYPE_CHECKING

from .counters import Counters, MemoryReport, ReplyStats
from .events import EngineState, Snapshot
from .modes import ModesState
from .outbox import Outbox
from .telemetry import RateMeter, process_rss, ram

if TYPE_CHECKING:
    from .opening import OpenModel
    from .reply import Reply

PERIOD = 0.3  # seconds between snapshots
_AT_REST = 3  # ... times this while nothing runs


class Monitor:
    """The worker says what is open and what runs; anyone reads `snapshot`."""

    def __init__(self, outbox: Outbox, log: Logger) -> None:
        self._outbox, self._log = outbox, log
        self._lock = threading.Lock()  # the model is not closed while it is looked at
        self._shown = threading.Lock()  # guards `snapshot`, state, queued and modes; held for moments
        self._opened: OpenModel | None = None
        self._reply: Reply | None = None
        self._last_reply: ReplyStats | None = None
        self._modes: ModesState | None = None
        self._state = EngineState.EMPTY
        self._queued = 0
        self._prompt_tokens = self._reply_tokens = 0  # of finished replies, since the model was opened
        self._rates = RateMeter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="strata-monitor", daemon=True)
        self.snapshot = Snapshot()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def set_state(self, state: EngineState, queued: int) -> None:
        """Cheap: the snapshot carries it at once."""
        with self._shown:
            self._state, self._queued = state, queued
            self.snapshot = replace(self.snapshot, state=state, queued=queued)

    def set_modes(self, modes: ModesState | None) -> None:
        with self._shown:
            self._modes = modes
            self.snapshot = replace(self.snapshot, modes=modes)

    def set_model(self, opened: OpenModel | None) -> None:
        """None before the model is closed."""
        with self._lock:
            self._opened, self._reply = opened, None
            self._prompt_tokens = self._reply_tokens = 0
            self._rates.reset()
            if opened is not None:
                self._last_reply = None
        self.publish()

    def begin(self, reply: Reply) -> None:
        with self._lock:
            self._reply = reply

    def end(self, reply: Reply, stats: ReplyStats) -> None:
        with self._lock:
            self._reply, self._last_reply = None, stats
            self._prompt_tokens += reply.prompt_read
            self._reply_tokens += reply.reply_tokens
        self.publish()

    def publish(self) -> None:
        """Takes a snapshot now."""
        with self._lock:
            opened, reply = self._opened, self._reply
            if reply is not None and (progress := reply.progress()):
                self._outbox.emit(progress)
            if opened is None:
                memory, counters = MemoryReport(ram_available=ram().available, process_rss=process_rss()), Counters()
            else:
                memory, counters = opened.memory(), opened.counters()
            rates = self._rates.add(
                time.monotonic(),
                counters,
                self._prompt_tokens + (reply.prompt_read if reply else 0),
                self._reply_tokens + (reply.reply_tokens if reply else 0),
            )
            snapshot = Snapshot(
                model=opened.about if opened else None,
                memory=memory,
                counters=counters,
                reply=reply.stats(counters) if reply else self._last_reply,
                rates=rates,
                context_used=len(opened.prefix.tokens) if opened else 0,
                context_total=opened.context.size if opened else 0,
            )
            with self._shown:
                if opened and self._modes:
                    self._modes = opened.live_modes(self._modes)
                self.snapshot = replace(snapshot, state=self._state, modes=self._modes, queued=self._queued)

    def _run(self) -> None:
        waited = 0
        while not self._stop.wait(PERIOD):
            waited += 1
            at_rest = self._state in (EngineState.EMPTY, EngineState.IDLE, EngineState.FAILED)
            if at_rest and waited < _AT_REST:
                continue
            waited = 0
            try:
                self.publish()
            except Exception:  # the next one may work; the worker does not depend on this thread
                self._log.exception("a snapshot could not be taken")
