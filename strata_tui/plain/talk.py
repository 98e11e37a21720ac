"""One chat in plain lines: the engine, the store, and the messages between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from ..config import Given
from ..conversation import conversation
from ..engine import events as ev
from ..engine.engine import Engine, EngineOptions
from ..engine.snapshot_names import chat_key
from ..errors import UserError
from ..parameters import Layers, checked
from ..sessions.rows import MessageRow, Role, SessionInfo, Status
from ..sessions.store import Ref, Store
from ..term.signals import interrupts
from ..ui.attachments import folded
from .lines import Lines, Steps
from .written import Written

CHECKPOINT_SECONDS = 1.0
_WAIT_SECONDS = 0.1  # how soon ctrl+c is noticed while the engine has nothing to say
_STATUS = {
    ev.FinishReason.STOP: Status.DONE,
    ev.FinishReason.LENGTH: Status.DONE,
    ev.FinishReason.FULL: Status.DONE,
    ev.FinishReason.CANCELLED: Status.STOPPED,
    ev.FinishReason.ERROR: Status.ERROR,
    ev.FinishReason.TOO_LONG: Status.ERROR,
}


class Talk:
    """The shown chat and the loaded model. A new chat is stored with its first message."""

    def __init__(self, engine: Engine, store: Store, given: Given, lines: Lines, engine_options: EngineOptions) -> None:
        self.engine = engine
        self.engine_options = engine_options
        self.store = store
        self.layers = Layers(given)
        self.lines = lines
        self.model: ev.ModelInfo | None = None
        self.plan: tuple[ev.PlanLine, ...] = ()
        self.last: ev.ReplyDone | None = None
        self.unsent = ""  # a message that did not fit the context
        self.show_thinking = False
        self.session: int | None = None
        self.elsewhere: int | None = None  # the process that has the chat open, where it is another one
        self.title = ""
        self.system = ""
        self.options: dict[str, object] = {}
        self.begin()

    # The chat

    def begin(self) -> None:
        """A new chat."""
        self._leave()
        self.unsent = ""
        self.session, self.title, self.options = None, "", {}
        self.system = str(self.layers.value("system", self.model, {}).value)

    def show(self, info: SessionInfo) -> None:
        """A stored chat."""
        self._leave()
        self.unsent = ""
        self.elsewhere = self.store.claim(info.id).result()
        self.session, self.title, self.system = info.id, info.title, info.system
        self.options = dict(info.options)

    def _leave(self) -> None:
        if self.session is not None and self.elsewhere is None:
            self.store.release(self.session).result()
        self.elsewhere = None

    def rows(self) -> list[MessageRow]:
        """The messages of the chat's shown branch."""
        return [] if self.session is None else self.store.branch(self.session)

    def stored(self) -> int:
        """The chat's id, which makes one for a new chat."""
        if self.session is None:
            model = self.model.name if self.model else ""
            new = self.store.create_session(title=self.title, system=self.system, model=model)
            self.session = new.result()
            self.store.claim(self.session).result()
            if self.options:
                self.store.set_options(self.session, self.options).result()
        return self.session

    # The model

    def load(self, path: Path, context: int | None = None) -> None:
        """Opens a model and waits for it. `context`: tokens, in place of the options'. Raises UserError; ctrl+c
        stops it.
        """
        steps = Steps(self.lines.say)

        def take(event: ev.Event) -> bool:
            if isinstance(event, ev.LoadProgress):
                steps.step(event.stage, event.done, event.total)
            elif isinstance(event, ev.LoadFailed):
                raise UserError("The load was stopped." if event.cancelled else event.message)
            elif isinstance(event, ev.Loaded):
                self._loaded(event)
            elif isinstance(event, ev.Notice):
                self.lines.say(f"Note: {event.text}")
            return isinstance(event, ev.Loaded)

        self.model = None
        self.engine.open(path, context=context)
        self._follow(take, self.engine.cancel_load)

    def _loaded(self, event: ev.Loaded) -> None:
        self.model, self.plan = event.model, event.plan
        for notice in event.notices:
            self.lines.say(f"Note: {notice}")
        if self.session is None:
            self.system = str(self.layers.value("system", self.model, {}).value)

    def held(self) -> int:
        """Bytes that the open model takes where the plan counts them."""
        return self.engine.snapshot().memory.held

    def measure(self, messages: Sequence[ev.Message], texts: Sequence[str]) -> ev.Measured:
        """Engine.measure with the chat's thinking, and its answer."""
        thinking = self.layers.sampling(self.model, checked(self.options)).thinking
        question = self.engine.measure(messages, texts=texts, thinking=thinking)
        answer: list[ev.Measured] = []

        def take(event: ev.Event) -> bool:
            if isinstance(event, ev.Measured) and event.id == question:
                answer.append(event)
            return bool(answer)

        self._follow(take, lambda: None)
        return answer[0]

    # A reply

    def send_unsent(self) -> None:
        """Sends the message that did not fit, if there is one."""
        if self.unsent:
            self.lines.say(f"Sending your message: {folded(self.unsent)}")
            self.send(self.unsent)

    def send(self, said: str) -> None:
        """Stores a message, and writes the reply as it comes. Raises UserError."""
        self.ready()
        before, session = self.rows(), self.stored()
        self._answer(before, self.store.add_user_message(session, said).result(), said)

    def edit(self, said: str) -> None:
        """Sends a text in the place of the last message, as a branch of its own. Raises UserError."""
        self.ready()
        before, old = self.rows(), self.last_message()
        self._answer(before, self.store.add_user_message(old.session_id, said, old.parent_id).result(), said)

    def again(self) -> None:
        """Has another reply written to the last message. Raises UserError."""
        self.ready()
        self._answer(self.rows(), self.last_message().id)

    def go_on(self) -> None:
        """Has the last reply gone on with, in its place. Raises UserError."""
        model, rows = self.ready(), self.rows()
        if not rows or rows[-1].role is not Role.ASSISTANT:
            raise UserError("There is no reply to go on with; /regen has one written.")
        old = rows[-1]
        self.store.resume_reply(old.id).result()
        messages = conversation(self.system, rows[:-1])
        begun = bool(old.text or old.thinking)
        if begun:
            messages.append(ev.Message("assistant", old.text, old.thinking))
        key = chat_key(self.store.path, old.session_id)
        sampling = self.layers.sampling(model, checked(self.options))
        reply = self.engine.generate(messages, sampling, go_on=begun, chat=key)
        done = self._write(reply, old.id, Written(self.lines, self.show_thinking, model.name, old), old)
        if done.reason is ev.FinishReason.TOO_LONG:
            raise UserError(f"Not gone on with: {done.message} /room makes room for more.")
        self._ended(done)

    def last_message(self) -> MessageRow:
        """The person's last message in the shown branch. Raises UserError where there is none."""
        found = next((row for row in reversed(self.rows()) if row.role is Role.USER), None)
        if found is None:
            raise UserError("There is no message of yours in this chat yet.")
        return found

    def ready(self) -> ev.ModelInfo:
        """The model; raises UserError where no reply can be written now."""
        if self.model is None:
            raise UserError("No model is loaded: /model lists those there are, /model NAME loads one.")
        if self.elsewhere is not None:
            where = f"Chat {self.session} is open in another window (process {self.elsewhere})"
            raise UserError(f"{where}: /fork goes on in a copy.")
        return self.model

    def _answer(self, before: Sequence[MessageRow], message: int, said: str = "") -> None:
        """Has a stored message answered. `before`: the branch that was shown until then; `said`: what was typed."""
        model, store = self.ready(), self.store
        session = self.stored()
        self.unsent = ""
        sampling = self.layers.sampling(model, checked(self.options))
        messages = conversation(self.system, store.tree(session).path(message))
        reply = self.engine.generate(messages, sampling, chat=chat_key(store.path, session))
        row = store.begin_reply(session, message, model=model.name, params=asdict(sampling))
        done = self._write(reply, row, Written(self.lines, self.show_thinking, model.name))
        if done.reason is not ev.FinishReason.TOO_LONG:
            self._ended(done)
            return
        store.set_leaf(session, before[-1].id if before else None).result()  # the chat goes on as it was
        if not said:
            raise UserError(f"Not written again: {done.message} /room makes room for more.")
        store.set_draft(session, said).result()
        self.unsent = said
        raise UserError(f"Not sent: {done.message} Your message is kept: /room makes room for it.")

    def _write(self, reply: int, row: Ref, written: Written, old: MessageRow | None = None) -> ev.ReplyDone:
        """Writes a reply as it comes and stores it. `old`: what it goes on with."""
        store, saved = self.store, time.monotonic()

        def take(event: ev.Event) -> bool:
            nonlocal saved
            if isinstance(event, ev.ReplyDone):
                written.finish()
                status, stats, note = _STATUS[event.reason], event.stats, event.message
                earlier = old.reply_stats if old is not None else None
                if earlier is not None:
                    stats = earlier.gone_on(stats)
                if old is not None and event.reason is ev.FinishReason.TOO_LONG:
                    status, stats, note = old.status, earlier or stats, old.note
                store.finish_reply(row, status, written.text, written.thinking, stats.to_dict(), note).result()
                self.last = event
                return True
            written.take(event)
            if time.monotonic() - saved >= CHECKPOINT_SECONDS:
                store.checkpoint_reply(row, written.text, written.thinking)
                saved = time.monotonic()
            return False

        self._follow(take, lambda: self.engine.cancel(reply))
        assert self.last is not None
        return self.last

    def _ended(self, done: ev.ReplyDone) -> None:
        if done.reason is ev.FinishReason.CANCELLED:
            self.lines.say("Stopped. What was written is kept.")
        elif done.reason is ev.FinishReason.LENGTH:
            self.lines.say(f"The reply was cut: {done.message}")
        elif done.reason is ev.FinishReason.FULL:
            self.lines.say(f"The reply was cut: {done.message} /room makes room for more.")
        elif done.reason is ev.FinishReason.ERROR:
            raise UserError(done.message or "The reply ended with an error.")

    def _follow(self, take: Callable[[ev.Event], bool], stop: Callable[[], None]) -> None:
        """Gives `take` the engine's events until it has had enough; the first ctrl+c stops what runs."""
        stopped = False
        with interrupts() as interrupted:
            while True:
                self.engine.wait_events(_WAIT_SECONDS)
                if interrupted() and not stopped:
                    stopped = True
                    stop()
                for event in self.engine.drain():
                    if take(event):
                        return
