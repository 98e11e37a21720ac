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
from ..sessions.rows import MessageRow, SessionInfo, Status
from ..sessions.store import Store
from ..term.signals import interrupts
from ..text import Cleaner, clean_line
from ..ui.attachments import folded
from .lines import Lines, Steps

CHECKPOINT_SECONDS = 1.0
_LONG_PROMPT = 512  # tokens from which on reading is said
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
        model, store = self.model, self.store
        if model is None:
            raise UserError("No model is loaded: /model lists those there are, /model NAME loads one.")
        session = self.stored()
        self.unsent = ""
        message = store.add_user_message(session, said).result()
        sampling = self.layers.sampling(model, checked(self.options))
        key = chat_key(store.path, session)
        reply = self.engine.generate(conversation(self.system, self.rows()), sampling, chat=key)
        row = store.begin_reply(session, message, model=model.name, params=asdict(sampling))
        written = _Written(self.lines, self.show_thinking, model.name)
        saved = time.monotonic()

        def take(event: ev.Event) -> bool:
            nonlocal saved
            if isinstance(event, ev.ReplyDone):
                written.finish()
                text, stats = written.text, event.stats.to_dict()
                store.finish_reply(row, _STATUS[event.reason], text, written.thinking, stats, event.message).result()
                self.last = event
                return True
            written.take(event)
            if time.monotonic() - saved >= CHECKPOINT_SECONDS:
                store.checkpoint_reply(row, written.text, written.thinking)
                saved = time.monotonic()
            return False

        self._follow(take, lambda: self.engine.cancel(reply))
        assert self.last is not None
        self._ended(self.last, message, said)

    def _ended(self, done: ev.ReplyDone, message: int, said: str) -> None:
        if done.reason is ev.FinishReason.CANCELLED:
            self.lines.say("Stopped. What was written is kept.")
        elif done.reason is ev.FinishReason.LENGTH:
            self.lines.say(f"The reply was cut: {done.message}")
        elif done.reason is ev.FinishReason.FULL:
            self.lines.say(f"The reply was cut: {done.message} /room makes room for more.")
        elif done.reason is ev.FinishReason.TOO_LONG:  # the chat goes on without the message; the store keeps it
            assert self.session is not None
            above = next(row.parent_id for row in self.rows() if row.id == message)
            self.store.set_leaf(self.session, above).result()
            self.store.set_draft(self.session, said).result()
            self.unsent = said
            raise UserError(f"Not sent: {done.message} Your message is kept: /room makes room for it.")
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


class _Written:
    """A reply as it is written out: the thinking is named, and shown only when asked for."""

    def __init__(self, lines: Lines, show_thinking: bool, name: str) -> None:
        self._lines = lines
        self._shows = show_thinking
        self._name = clean_line(name)
        self._steps = Steps(lines.say)
        self._cleaner = Cleaner()
        self._thinker = Cleaner()
        self.text = ""
        self.thinking = ""
        self._began: float | None = None  # the thinking

    def take(self, event: ev.Event) -> None:
        """Writes what may be shown."""
        if isinstance(event, ev.PromptProgress):
            if event.total > _LONG_PROMPT:
                self._steps.step(f"reading {event.total} tokens", event.done, event.total)
        elif isinstance(event, ev.Notice):
            self._lines.say(f"Note: {event.text}")
        elif isinstance(event, ev.TextDelta) and event.thinking:
            self._think(event.text)
        elif isinstance(event, ev.TextDelta):
            if not self.text:
                self._end_thinking()
                self._lines.say(f"{self._name}:")
            self.text += event.text
            self._lines.write(self._cleaner.feed(event.text))

    def _think(self, text: str) -> None:
        if self._began is None:
            self._began = time.monotonic()
            self._lines.say("Thinking.")
        self.thinking += text
        if self._shows:
            self._lines.write(self._thinker.feed(text))

    def finish(self) -> None:
        """Writes what was held back."""
        if not self.text:
            self._end_thinking()
        self._lines.write(self._cleaner.finish())
        self._lines.end()

    def _end_thinking(self) -> None:
        if self._began is not None:
            self._lines.write(self._thinker.finish())
            self._lines.say(f"Thought for {time.monotonic() - self._began:.0f} seconds.")
            self._began = None
