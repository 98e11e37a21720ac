"""Sending a message and keeping its reply: the store gets everything before or as it happens.

The order is the promise: a person's message is committed before the engine sees it; the reply's text
is stored every second and at its end, whatever the end was.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict

from ..engine.engine import Engine
from ..engine.events import FinishReason, PromptProgress, ReplyDone, Sampling, TextDelta
from ..sessions.rows import Role, Status
from ..sessions.store import Store
from .chat import STATUS_OF, Chat, RunningReply, Turn

CHECKPOINT_SECONDS = 1.0


class Replies:
    """The one running reply, if any. All methods are called on the UI thread and none waits for the disk."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self.running: RunningReply | None = None
        self.sending = False  # a message is on its way to the store

    @property
    def busy(self) -> bool:
        """Whether a message cannot be sent now."""
        return self.sending or self.running is not None

    async def send(self, chat: Chat, text: str, model: str, sampling: Sampling) -> RunningReply:
        """Stores the message, then starts the reply. Raises UserError when it cannot be stored."""
        self.sending = True
        try:
            session = await chat.stored(self._store, model)
            message = await asyncio.wrap_future(self._store.add_user_message(session, text))
            user = chat.add_user(text, time.time(), message)
            reply = self._engine.generate(chat.messages(), sampling)
            row = self._store.begin_reply(session, message, model=model, params=asdict(sampling))
            turn = Turn(Role.ASSISTANT, "", time.time(), live=True, status=Status.RUNNING, model=model, ref=row)
            chat.turns.append(turn)
            now = time.monotonic()
            self.running = RunningReply(reply, chat, user, turn, row, started=now, saved=now)
            return self.running
        finally:
            self.sending = False

    def stop(self) -> bool:
        """Asks the engine to stop the running reply; false when there is none."""
        run = self.running
        if run is None:
            return False
        run.stopping = True
        self._engine.cancel(run.id)
        return True

    def take(self, event: PromptProgress | TextDelta) -> RunningReply | None:
        """Adds progress or text to the running reply; None when it belongs to no reply of ours."""
        run = self.running
        if run is None or event.reply_id != run.id:
            return None
        if isinstance(event, PromptProgress):
            run.prompt = (event.done, event.total)
            return run
        run.changed = True
        if event.thinking:
            run.turn.thinking += event.text
            run.turn.thinking_seconds = time.monotonic() - run.started
        else:
            run.turn.text += event.text
        return run

    def checkpoint(self) -> None:
        """Stores what there is, at most once a second; called by a timer."""
        run, now = self.running, time.monotonic()
        if run is not None and run.changed and now - run.saved >= CHECKPOINT_SECONDS:
            self._store.checkpoint_reply(run.message, run.turn.text, run.turn.thinking)
            run.saved, run.changed = now, False

    def finish(self, event: ReplyDone) -> RunningReply | None:
        """Ends the running reply and stores it with its numbers; None when it is no reply of ours.

        A message that does not fit the context is taken out of the branch (it stays in the store), so
        that the chat can go on with a shorter one.
        """
        run = self.running
        if run is None or event.reply_id != run.id:
            return None
        self.running = None
        turn = run.turn
        turn.live = False
        turn.status, turn.note, turn.stats = STATUS_OF[event.reason], event.message, event.stats
        self._store.finish_reply(
            run.message, turn.status, turn.text, turn.thinking, event.stats.to_dict(), event.message
        )
        if event.reason is FinishReason.TOO_LONG:
            run.chat.turns.remove(turn)
            run.chat.turns.remove(run.user)
            assert run.chat.session is not None
            above = run.chat.turns[-1].ref if run.chat.turns else None
            self._store.set_leaf(run.chat.session, above)
        return run

    def abandon(self) -> None:
        """Stores the running reply as stopped without waiting for the engine: the program ends."""
        run = self.running
        if run is not None:
            self.running = None
            run.turn.live = False
            run.turn.status = Status.STOPPED
            self._store.finish_reply(run.message, Status.STOPPED, run.turn.text, run.turn.thinking)
