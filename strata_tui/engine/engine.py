"""The engine as the command line and the screen see it. No method here waits for native code, except close."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from .events import Event, Message, Notice, Sampling, Snapshot
from .llama_log import LOG
from .log_file import LogFile
from .modes import Modes
from .monitor import Monitor
from .options import EngineOptions
from .outbox import Outbox
from .worker import Worker

__all__ = ["Engine", "EngineOptions"]


class Engine:
    """One per process. Its worker thread owns llama.cpp; what it says arrives as events."""

    def __init__(self, options: EngineOptions) -> None:
        """Raises UserError when the log file cannot be written."""
        self._outbox = Outbox()
        self._log = _logger(options.log, lambda text: self._outbox.emit(Notice(text)))
        LOG.sink = self._llama_line
        self._monitor = Monitor(self._outbox, self._log)
        self._worker = Worker(options, self._outbox, self._monitor, self._log)
        self._monitor.start()
        self._closed = False

    def open(self, path: Path, *, context: int | None = None) -> None:
        """Opens a model in place of the open one, after the replies that wait already.

        `context`: tokens, in place of the options' own. Events: LoadProgress..., then always one Loaded or LoadFailed.
        """
        self._worker.open(path, context)

    def cancel_load(self) -> None:
        """Stops the running load and those waiting; each ends with LoadFailed(cancelled=True)."""
        self._worker.cancel_load()

    def generate(self, messages: Sequence[Message], sampling: Sampling, *, go_on: bool = False, chat: str = "") -> int:
        """Queues a reply and returns its id. Events: PromptProgress, TextDelta..., then always one ReplyDone.

        `go_on`: the last message is the assistant's own, unfinished; the events tell only what is added to it.
        `chat`: names the chat among all chats (snapshot_names.chat_key), so that its KV snapshots are kept and used.
        """
        return self._worker.generate(messages, sampling, go_on=go_on, chat=chat)

    def forget(self, chats: Collection[str]) -> None:
        """Drops the KV snapshots of chats that are gone for good, in RAM and on the disk."""
        self._worker.forget(chats)

    def measure(self, messages: Sequence[Message], *, texts: Sequence[str] = (), thinking: str | None = None) -> int:
        """Asks how many tokens a prompt of these messages takes, and each of these texts; after all that waits.

        `thinking`: as in Sampling. Returns an id; event: always one Measured with it.
        """
        return self._worker.measure(messages, texts, thinking)

    def cancel(self, reply_id: int | None = None) -> None:
        """Ends a running or waiting reply, or all of them; unknown and finished ids are ignored."""
        self._worker.cancel(reply_id)

    def set_modes(self, modes: Modes) -> None:
        """Wanted switches, applied at the next round. Event: ModesChanged with the state read back."""
        self._worker.set_modes(modes)

    def snapshot(self) -> Snapshot:
        """The last one taken, at most about 0.3 s old."""
        return self._monitor.snapshot

    def drain(self) -> list[Event]:
        """Events since the last call, in order."""
        return self._outbox.drain()

    def wait_events(self, timeout: float) -> bool:
        """Sleeps until an event is there, at most `timeout` seconds; whether one is."""
        return self._outbox.wait(timeout)

    def close(self, timeout: float = 10.0) -> None:
        """Cancels everything and frees the model. Events of what was cancelled can still be drained."""
        if self._closed:
            return
        self._closed = True
        if not self._worker.close(timeout):
            self._log.error("close: the worker did not end within %g s", timeout)
        self._monitor.stop()
        if LOG.sink == self._llama_line:
            LOG.sink = None
        for handler in self._log.handlers:
            handler.close()

    def _llama_line(self, level: str, line: str) -> None:
        self._log.log(getattr(logging, level.upper()), "llama.cpp: %s", line)


def _logger(path: Path | None, tell: Callable[[str], None]) -> logging.Logger:
    """A logger of this engine's own, not in the process's registry."""
    log = logging.Logger("strata-engine", logging.INFO)
    if path is None:
        log.addHandler(logging.NullHandler())
        return log
    log.addHandler(LogFile(path, tell))
    return log
