"""Having replies written and keeping them: the store gets everything before or as it happens.

The order is the promise: a person's message is committed before the engine sees it; the reply's text
is stored every second and at its end, whatever the end was.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass

from ..engine.engine import Engine
from ..engine.events import FinishReason, Message, PromptProgress, ReplyDone, Sampling, TextDelta
from ..engine.snapshot_names import chat_key
from ..errors import UserError
from ..sessions.rows import Role, Status
from ..sessions.store import Ref, Store
from .chat import STATUS_OF, Before, Chat, RunningReply, Turn

CHECKPOINT_SECONDS = 1.0


@dataclass(slots=True, eq=False)
class _End:
    """The end of a reply, and how it is stored anew where the store refused it."""

    chat: Chat
    write: Callable[[], Future[None]]
    stored: Future[None]

    @property
    def kept(self) -> bool:
        return self.stored.done() and self.stored.exception() is None


class Replies:
    """The one running reply, if any. All methods are called on the UI thread and none waits for the disk."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self.running: RunningReply | None = None
        self.session: int | None = None  # of the last reply's chat, while its model is open
        self._starting = False  # a message is on its way to the store
        self._stop = False  # asked for meanwhile
        self._ends: list[_End] = []  # of replies, on their way to the store or refused by it

    @property
    def busy(self) -> bool:
        """Whether another reply cannot begin now."""
        return self._starting or self.running is not None

    # Each of these raises UserError when the store refuses; nothing has begun then.

    async def send(self, chat: Chat, text: str, above: Turn, model: str, sampling: Sampling) -> RunningReply:
        """Stores a message that follows `above`, then starts the reply to it."""
        with self._beginning():
            with contextlib.suppress(UserError):  # told of already; `above` may be such a reply
                await self.keep_ends()
            session = await chat.stored(self._store, model)
            message = await asyncio.wrap_future(self._store.add_user_message(session, text, above.ref))
            shown = chat.end
            user = chat.add_user(text, time.time(), message, above)
            run = self._begin(chat, session, user, shown, model, sampling)
            run.sent = user
            return run

    async def answer(self, chat: Chat, user: Turn, model: str, sampling: Sampling) -> RunningReply:
        """Starts another reply to a message that is stored; it becomes a branch of its own."""
        with self._beginning():
            session = await chat.stored(self._store, model)
            return self._begin(chat, session, user, chat.end, model, sampling)

    async def go_on(self, chat: Chat, turn: Turn, model: str, sampling: Sampling) -> RunningReply:
        """Has a reply gone on with where it ended; in place, or as a branch where messages follow it."""
        with self._beginning():
            session, above = await chat.stored(self._store, model), turn.above
            assert above is not None
            before = Before(turn.status, turn.note, turn.stats)
            shown = chat.end
            if turn.below:
                row: Ref = self._store.begin_reply(session, above.ref, model=model, params=asdict(sampling))
                await asyncio.wrap_future(self._store.checkpoint_reply(row, turn.text, turn.thinking))
                turn = Turn(
                    Role.ASSISTANT,
                    turn.text,
                    time.time(),
                    thinking=turn.thinking,
                    thinking_seconds=turn.thinking_seconds,
                    thinking_tokens=turn.thinking_tokens,
                    model=model,
                    stats=turn.stats,
                    ref=row,
                )
                chat.add(turn, above)
            else:
                assert turn.ref is not None
                row = turn.ref
                await asyncio.wrap_future(self._store.resume_reply(row))
                chat.show(turn)
            turn.live, turn.status, turn.note = True, Status.RUNNING, ""
            messages = chat.messages(above)
            begun = bool(turn.text or turn.thinking)
            if begun:
                messages.append(Message(Role.ASSISTANT.value, turn.text, turn.thinking))
            reply = self._generate(session, messages, sampling, go_on=begun)
            run = self._run(reply, chat, turn, row, shown, sampling)
            run.before = before
            return run

    @contextlib.contextmanager
    def _beginning(self) -> Iterator[None]:
        self._starting, self._stop = True, False
        try:
            yield
        finally:
            self._starting = False

    def _begin(self, chat: Chat, session: int, user: Turn, shown: Turn, model: str, sampling: Sampling) -> RunningReply:
        reply = self._generate(session, chat.messages(user), sampling)
        row = self._store.begin_reply(session, user.ref, model=model, params=asdict(sampling))
        turn = Turn(Role.ASSISTANT, "", time.time(), live=True, status=Status.RUNNING, model=model, ref=row)
        chat.add(turn, user)
        return self._run(reply, chat, turn, row, shown, sampling)

    def _generate(self, session: int, messages: list[Message], sampling: Sampling, *, go_on: bool = False) -> int:
        return self._engine.generate(messages, sampling, go_on=go_on, chat=chat_key(self._store.path, session))

    def _run(self, reply: int, chat: Chat, turn: Turn, row: Ref, shown: Turn, sampling: Sampling) -> RunningReply:
        now, self.session = time.monotonic(), chat.session
        self.running = run = RunningReply(reply, chat, turn, row, sampling, started=now, saved=now, shown=shown)
        if self._stop:
            self.stop()
        return run

    def stop(self) -> bool:
        """Asks the engine to stop the running reply; false when there is none."""
        run = self.running
        if run is None:
            self._stop = self._starting
            return self._starting
        run.stopping = True
        self._engine.cancel(run.id)
        return True

    def take(self, event: PromptProgress | TextDelta) -> RunningReply | None:
        """Adds progress or text to the running reply; None when it belongs to no reply of ours."""
        run = self.running
        if run is None or event.reply_id != run.id:
            return None
        if isinstance(event, PromptProgress):
            run.prompt = event
            return run
        run.changed = True
        now = time.monotonic()
        run.first = run.first or now
        if event.thinking:
            run.turn.thinking += event.text
            earlier = run.before.stats if run.before else None
            run.turn.thinking_seconds = now - run.first + (earlier.thinking_seconds or 0.0 if earlier else 0.0)
        else:
            run.turn.text += event.text
        return run

    def count_thinking(self, tokens: int) -> None:
        """How many tokens of thinking the engine has counted in the running reply so far."""
        run = self.running
        if run is not None and run.turn.thinking:
            earlier = run.before.stats if run.before else None
            run.turn.thinking_tokens = tokens + (earlier.thinking_tokens if earlier else 0)

    def checkpoint(self) -> None:
        """Stores what there is, at most once a second; called by a timer."""
        run, now = self.running, time.monotonic()
        if run is not None and run.changed and now - run.saved >= CHECKPOINT_SECONDS:
            self._store.checkpoint_reply(run.message, run.turn.text, run.turn.thinking)
            run.saved, run.changed = now, False

    def finish(self, event: ReplyDone) -> RunningReply | None:
        """Ends the running reply and stores it with its numbers; None when it is no reply of ours.

        Where the prompt does not fit the context, the branch that was shown before is shown again (this one
        stays in the store), so that the chat can go on with a shorter message.
        """
        run = self.running
        if run is None or event.reply_id != run.id:
            return None
        self.running = None
        turn, before = run.turn, run.before
        turn.live = False
        turn.status, turn.note, turn.stats = STATUS_OF[event.reason], event.message, event.stats
        if before is not None and before.stats is not None:
            turn.stats = before.stats.gone_on(event.stats)
        if before is not None and event.reason is FinishReason.TOO_LONG:
            turn.status, turn.note, turn.stats = before.status, before.note, before.stats
        if turn.stats is not None and turn.stats.thinking_tokens:
            turn.thinking_tokens, turn.thinking_seconds = turn.stats.thinking_tokens, turn.stats.thinking_seconds
        stats = turn.stats.to_dict() if turn.stats is not None else None
        self._keep_end(run, stats)
        if event.reason is FinishReason.TOO_LONG:
            run.chat.show(run.shown)
            self.keep_shown(run.chat)
        return run

    def _keep_end(self, run: RunningReply, stats: dict[str, object] | None) -> None:
        """Stores a reply's end; it is held until the store has it."""
        turn, store = run.turn, self._store

        def write() -> Future[None]:
            assert run.chat.session is not None and turn.above is not None
            if isinstance(run.message, Future) and run.message.done() and run.message.exception() is not None:
                params = asdict(run.sampling)  # not even its beginning was stored
                row = store.begin_reply(run.chat.session, turn.above.ref, model=turn.model, params=params)
                run.message = turn.ref = row
                self.keep_shown(run.chat)
            return store.finish_reply(run.message, turn.status, turn.text, turn.thinking, stats, turn.note)

        self._ends = [end for end in self._ends if not end.kept]
        self._ends.append(_End(run.chat, write, write()))

    async def keep_ends(self) -> None:
        """Waits until the ends of all replies are stored, each tried once more. Raises UserError for one that is not.

        That reply is only on the screen, and kept for the next time.
        """
        for end in [*self._ends]:
            try:
                await asyncio.wrap_future(end.stored)
            except UserError:
                end.stored = end.write()
                await asyncio.wrap_future(end.stored)
            self._ends = [other for other in self._ends if other is not end]

    def unkept(self, chat: Chat) -> bool:
        """Whether the end of a reply of a chat was refused by the store."""
        return any(end.chat is chat and end.stored.done() and not end.kept for end in self._ends)

    def keep_shown(self, chat: Chat) -> None:
        """Stores which branch of a chat is shown."""
        if chat.session is not None:
            self._store.set_leaf(chat.session, chat.end.ref)

    def abandon(self) -> None:
        """Stores the running reply as stopped without waiting for the engine: the program ends."""
        run = self.running
        if run is not None:
            self.running = None
            turn = run.turn
            turn.live = False
            turn.status = Status.STOPPED
            stats = run.before.stats.to_dict() if run.before and run.before.stats else None
            self._keep_end(run, stats)
