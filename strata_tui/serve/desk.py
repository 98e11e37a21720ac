"""One engine for many clients: each reply's events go to the thread that asked for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from queue import Empty, SimpleQueue

from ..engine.engine import Engine
from ..engine.events import PromptProgress, ReplyDone, Sampling, TextDelta
from .requests import Request

_WAIT_SECONDS = 0.5  # between two looks at whether a client is still there
ReplyEvent = PromptProgress | TextDelta | ReplyDone


class Asked:
    """A reply that was asked for. Iterate over it for its events, the last of which is its ReplyDone."""

    def __init__(self, desk: Desk, id: int, there: Callable[[], bool]) -> None:
        self._desk = desk
        self._id = id
        self._there = there
        self.events: SimpleQueue[ReplyEvent] = SimpleQueue()

    def __iter__(self) -> Generator[ReplyEvent]:
        """Ends without a ReplyDone where the client has gone, or the desk was closed. The reply is stopped then."""
        looked = time.monotonic()
        try:
            while True:
                event: ReplyEvent | None = None
                with suppress(Empty):
                    event = self.events.get(timeout=_WAIT_SECONDS)
                if time.monotonic() - looked >= _WAIT_SECONDS:
                    looked = time.monotonic()
                    if self._desk.closed or not self._there():
                        return
                if event is not None:
                    yield event
                if isinstance(event, ReplyDone):
                    return
        finally:
            self._desk.forget(self._id)

    def stop(self) -> None:
        """Has the reply end here; its ReplyDone still comes."""
        self._desk.stop(self._id)


class Desk:
    """Replies are written one after the other, in the order in which they were asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()  # a reply's first event waits until there is someone to give it to
        self._asked: dict[int, Asked] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._hand_out, name="desk", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether no more events come."""
        return self._closed.is_set()

    def ask(self, request: Request, sampling: Sampling, there: Callable[[], bool]) -> Asked:
        """Queues a reply. `there` tells whether the client still is; it is asked now and then."""
        with self._lock:
            reply = self._engine.generate(request.messages, sampling, go_on=request.go_on)
            asked = self._asked[reply] = Asked(self, reply, there)
        return asked

    def stop(self, reply: int) -> None:
        """Ends a reply; one that has ended is left alone."""
        self._engine.cancel(reply)

    def forget(self, reply: int) -> None:
        """Nobody takes a reply's events any more."""
        with self._lock:
            self._asked.pop(reply, None)
        self._engine.cancel(reply)

    def close(self) -> None:
        """Ends the thread, and with it everyone's waiting."""
        self._closed.set()
        self._thread.join()

    def _hand_out(self) -> None:
        while not self.closed:
            self._engine.wait_events(_WAIT_SECONDS)
            events = self._engine.drain()
            with self._lock:
                for event in events:
                    if isinstance(event, PromptProgress | TextDelta | ReplyDone) and event.reply_id in self._asked:
                        self._asked[event.reply_id].events.put(event)
