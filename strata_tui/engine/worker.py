"""The one thread that owns llama.cpp: commands in, events out."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from logging import Logger
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from .counters import ReplyStats
from .events import (
    EngineState,
    FinishReason,
    Loaded,
    LoadFailed,
    Message,
    ModesChanged,
    Notice,
    ReplyDone,
    Sampling,
)
from .job import Hooks, Job, Measure
from .llama_log import cause
from .loading import LoadCancelled, LoadControl
from .modes import Modes
from .monitor import Monitor
from .options import EngineOptions
from .outbox import Outbox
from .snapshot_names import is_key

if TYPE_CHECKING:
    from .opening import OpenModel  # at run time when a model is opened: it takes as long as the first frame


@dataclass(frozen=True)
class _Open:
    path: Path
    context: int | None = None  # in place of the options' own
    control: LoadControl = field(default_factory=LoadControl)


@dataclass(frozen=True)
class _Forget:
    chats: frozenset[str]


class Worker:
    """Public methods may be called from any thread and return at once; the rest runs on the worker's thread."""

    def __init__(self, options: EngineOptions, outbox: Outbox, monitor: Monitor, log: Logger) -> None:
        self._options, self._outbox, self._monitor, self._log = options, outbox, monitor, log
        self._wake = threading.Condition()  # guards everything down to _closing
        self._commands: deque[_Open | Job | _Forget | Measure] = deque()
        self._loading: _Open | None = None
        self._running: Job | None = None
        self._cancelled = False  # the running reply
        self._modes = options.modes
        self._modes_changed = False
        self._state = EngineState.EMPTY
        self._next_id = 1
        self._closing = False
        self._opened: OpenModel | None = None  # only this thread changes it, under the lock
        self._thread = threading.Thread(target=self._run, name="strata-engine", daemon=True)
        self._thread.start()

    # From any thread

    def open(self, path: Path, context: int | None = None) -> None:
        with self._wake:
            self._refuse_when_closed()
            self._commands.append(_Open(path, context))
            self._wake.notify()

    def cancel_load(self) -> None:
        with self._wake:
            waiting = [c for c in self._commands if isinstance(c, _Open)]
            for command in waiting:
                self._commands.remove(command)
            if self._loading is not None:
                self._loading.control.cancel()
        for command in waiting:
            self._outbox.emit(LoadFailed(f"{command.path.name} was not opened: cancelled.", cancelled=True))

    def generate(self, messages: Sequence[Message], sampling: Sampling, *, go_on: bool = False, chat: str = "") -> int:
        if chat and not is_key(chat):
            raise ValueError(f"{chat!r} names no chat")
        with self._wake:
            self._refuse_when_closed()
            job = Job(self._next_id, tuple(messages), sampling, go_on, chat)
            self._next_id += 1
            self._commands.append(job)
            self._show()
            self._wake.notify()
        return job.reply_id

    def forget(self, chats: Collection[str]) -> None:
        with self._wake:
            self._refuse_when_closed()
            self._commands.append(_Forget(frozenset(chats)))
            self._wake.notify()

    def measure(self, messages: Sequence[Message], texts: Sequence[str], thinking: str | None) -> int:
        with self._wake:
            self._refuse_when_closed()
            question = Measure(self._next_id, tuple(messages), tuple(texts), thinking)
            self._next_id += 1
            self._commands.append(question)
            self._wake.notify()
        return question.id

    def cancel(self, reply_id: int | None = None) -> None:
        with self._wake:
            waiting = [c for c in self._commands if isinstance(c, Job) and reply_id in (None, c.reply_id)]
            for job in waiting:
                self._commands.remove(job)
            if self._running is not None and reply_id in (None, self._running.reply_id):
                self._cancelled = True
                if self._opened is not None:
                    self._opened.tier.cancel(True)
                self._state = EngineState.CANCELLING
            self._show()
        for job in waiting:
            self._outbox.emit(ReplyDone(job.reply_id, FinishReason.CANCELLED, ReplyStats()))

    def set_modes(self, modes: Modes) -> None:
        with self._wake:
            self._modes, self._modes_changed = modes, True
            state = self._monitor.snapshot.modes
            if state is not None:
                residency, draft = state.residency, state.draft
                self._monitor.set_modes(
                    replace(
                        state,
                        pinning=replace(state.pinning, wanted=modes.pinning.value, pending=True),
                        stager=replace(state.stager, wanted=modes.stager.value, pending=True),
                        residency=residency and replace(residency, wanted=modes.residency.value, pending=True),
                        draft=draft and replace(draft, wanted=modes.draft.value, pending=True),
                    )
                )
            self._wake.notify()

    def close(self, timeout: float) -> bool:
        """Cancels all, ends the thread and frees the model; False when it did not end in time."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self.cancel_load()
        self.cancel()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _refuse_when_closed(self) -> None:
        if self._closing:
            raise RuntimeError("the engine is closed")

    # On the worker's thread

    def _run(self) -> None:
        while True:
            with self._wake:
                due = self._wake.wait_for(
                    lambda: bool(self._commands) or self._modes_changed or self._closing, self._patience()
                )
                if self._closing:
                    break
                command = self._commands.popleft() if due and not self._modes_changed else None
                if isinstance(command, _Open):
                    self._loading, self._state = command, EngineState.LOADING
                elif isinstance(command, Job):
                    self._begin(command)
                self._show()
            try:
                if not due:
                    self._idle()
                elif isinstance(command, _Forget):
                    self._forget(command)
                elif isinstance(command, _Open):
                    self._open(command)
                elif isinstance(command, Job):
                    self._reply(command)
                elif isinstance(command, Measure):
                    self._measure(command)
                else:
                    self._apply_modes()
            except Exception as error:  # the thread must live on; each command has its own handling before this
                self._log.exception("the worker survived an error")
                self._outbox.emit(Notice(f"Internal error of the engine: {cause(error)}."))
        self._close_model()
        with self._wake:
            self._state = EngineState.CLOSED
            self._show()

    def _patience(self) -> float | None:
        """Seconds without a command after which there is something to do; None: there is nothing."""
        opened = self._opened
        if opened is None:
            return None
        return 0.0 if opened.mirror.filling else opened.snapshots.wait()

    def _idle(self) -> None:
        """Nothing is asked for."""
        opened = self._opened
        if opened is not None and opened.snapshots.wait() == 0:
            opened.snapshots.save()
        else:
            self._fill_mirror(whole=True)

    def _forget(self, command: _Forget) -> None:
        if self._opened is not None:
            self._opened.snapshots.forget(command.chats)

    def _show(self) -> None:
        """Under the lock."""
        self._monitor.set_state(self._state, sum(isinstance(c, Job) for c in self._commands))

    def _begin(self, job: Job) -> None:
        """Under the lock: from here on a cancel means this job, and none that came before counts."""
        self._running, self._cancelled = job, False
        if self._opened is not None:
            self._opened.tier.cancel(False)
            self._state = EngineState.PROMPT

    def _open(self, command: _Open) -> None:
        self._close_model()
        log = self._log
        log.info("open: %s", command.path)
        failure: LoadFailed | None = None
        opened: OpenModel | None = None
        try:
            from .opening import open_model

            command.control.check()
            with self._wake:
                modes, self._modes_changed = self._modes, False
            options = self._options
            if command.context is not None:
                options = replace(options, context=command.context)
            opened = open_model(command.path, options, modes, self._outbox.emit, command.control, log)
        except LoadCancelled:
            failure = LoadFailed(f"{command.path.name} was not opened: cancelled.", cancelled=True)
        except UserError as error:
            failure = LoadFailed(str(error))
        except Exception as error:
            log.exception("open failed")
            failure = LoadFailed(f"{command.path.name} cannot be opened: {cause(error)}.")
        with self._wake:
            self._loading, self._opened = None, opened
            if opened is not None:
                self._state = EngineState.IDLE
            elif failure is not None and failure.cancelled:
                self._state = EngineState.EMPTY
            else:
                self._state = EngineState.FAILED
            self._show()
        if opened is not None:
            self._monitor.set_modes(opened.modes)
            self._monitor.set_model(opened)
            log.info("opened: %s", opened.about.words)
            log.info("modes: %s", opened.modes.words if opened.modes else "unknown")
            for text in opened.notices:
                log.info("notice: %s", text)
            self._outbox.emit(Loaded(opened.about, opened.plan.lines, opened.notices))
        elif failure is not None:
            log.error("open: %s", failure.message)
            self._outbox.emit(failure)

    def _close_model(self) -> None:
        with self._wake:
            opened, self._opened = self._opened, None
        if opened is not None:
            self._monitor.set_modes(None)
            self._monitor.set_model(None)
            opened.close()

    def _reply(self, job: Job) -> None:
        opened = self._opened
        if opened is None:
            with self._wake:
                self._running = None
                self._show()
            self._outbox.emit(
                ReplyDone(job.reply_id, FinishReason.ERROR, ReplyStats(), "No model is open: open one first.")
            )
            return
        hooks = Hooks(self._outbox.emit, lambda: self._cancelled, self._apply_modes, self._decoding)
        from .reply import Reply

        reply = Reply(job, opened, hooks, self._log)
        self._monitor.begin(reply)
        done = reply.run()
        with self._wake:
            self._running, self._cancelled = None, False
            opened.tier.cancel(False)
            self._state = EngineState.IDLE
            self._show()
        self._refresh(opened)
        self._monitor.end(reply, done.stats)
        self._outbox.emit(done)
        opened.snapshots.replied()
        opened.note_usage()

    def _measure(self, question: Measure) -> None:
        from .measure import measured

        self._outbox.emit(measured(self._opened, question, self._log))

    def _fill_mirror(self, *, whole: bool) -> None:
        """A whole step, while nothing else is to do, or what is due between two rounds."""
        opened = self._opened
        if opened is None or not opened.mirror.filling:
            return
        try:
            if whole:
                opened.mirror.step()
            else:
                opened.mirror.between_rounds()
        except opened.core.Error as error:
            opened.mirror.filling = False
            self._log.exception("mirror")
            self._outbox.emit(Notice(f"The mirror could not be filled further: {cause(error)}."))
        if whole or not opened.mirror.filling:
            self._refresh(opened)

    def _decoding(self) -> None:
        with self._wake:
            if self._state is EngineState.PROMPT:
                self._state = EngineState.DECODE
                self._show()

    def _apply_modes(self) -> None:
        """Between rounds, or while idle."""
        self._fill_mirror(whole=False)
        if not self._modes_changed:
            return
        with self._wake:
            modes, self._modes_changed = self._modes, False
        opened = self._opened
        if opened is None:
            return  # kept for the next model
        try:
            opened.apply(modes)
        except Exception as error:
            self._log.exception("modes")
            self._outbox.emit(Notice(f"The switches could not be changed: {cause(error)}."))
        self._refresh(opened)
        if opened.modes is not None:
            self._log.info("modes: %s", opened.modes.words if opened.modes else "unknown")
            self._outbox.emit(ModesChanged(opened.modes))

    def _refresh(self, opened: OpenModel) -> None:
        state = opened.refresh()
        with self._wake:
            if not self._modes_changed:
                self._monitor.set_modes(state)
