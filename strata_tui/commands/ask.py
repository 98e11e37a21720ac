"""`strata-tui ask`: one question, the reply on stdout."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..term.signals import interrupts
from .flags import add_engine_flags, add_setting, check_model_file, find_model, log_of, settings_of

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..engine.events import Event, Message, ReplyDone, Sampling

HELP = "Ask one question; the reply goes to stdout."

_WAIT_SECONDS = 0.1  # how soon Ctrl-C is noticed while the engine has nothing to say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", nargs="*", metavar="WORD", help="the question; piped input is added to its end")
    add_setting(parser, "system", "TEXT", "the system prompt", "-s")
    parser.add_argument("--stats", action="store_true", help="the reply's counters on stderr")
    add_engine_flags(parser)


def run(args: argparse.Namespace) -> int:
    find_model(args)
    settings = settings_of(args)
    prompt = _prompt(args.prompt)
    log = log_of(args)
    if settings.model is not None:
        check_model_file(settings.model)
    from ..engine.engine import Engine
    from ..engine.events import Message

    messages = [Message("system", settings.system)] if settings.system else []
    messages.append(Message("user", prompt))
    status = Status()
    model = settings.model or _demo_model(status)
    with interrupts() as interrupted:
        engine = Engine(replace(settings.engine_options(log), snapshots=None))  # there is no chat to come back to
        try:
            done = Reply(engine, status, interrupted).run(model, messages, settings.sampling)
        finally:
            status.clear()
            engine.close()
    if args.stats and done is not None:
        from .stats import stats_lines

        print("\n".join(stats_lines(done.stats)), file=sys.stderr)
    return 130 if interrupted() else 0


class Status:
    """One line about what goes on, on a terminal's stderr; it goes before the reply comes."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()
        self._shown = False

    def show(self, text: str) -> None:
        if self._on:
            self._shown = True
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def share(self, what: str, done: int, total: int) -> None:
        self.show(f"{what} {100 * done // total} %" if total else what)

    def clear(self) -> None:
        if self._shown:
            self._shown = False
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class Reply:
    """Opens the model and writes one reply to stdout as it comes."""

    def __init__(self, engine: Engine, status: Status, interrupted: Callable[[], bool]) -> None:
        from ..text import Cleaner

        self._engine = engine
        self._status = status
        self._interrupted = interrupted
        self._cleaner = Cleaner()
        self._last = "\n"  # the character written last

    def run(self, model: Path, messages: list[Message], sampling: Sampling) -> ReplyDone | None:
        """The reply's end, None when Ctrl-C came before it began. Raises UserError."""
        from ..engine import events as ev

        self._engine.open(model)
        for event in self._events():
            if isinstance(event, ev.LoadProgress):
                self._status.share(event.stage, event.done, event.total)
            elif isinstance(event, ev.LoadFailed):
                if event.cancelled:
                    return None
                raise UserError(event.message)
            elif isinstance(event, ev.Loaded):
                for notice in event.notices:
                    self._notice(notice)
                if self._interrupted():
                    return None
                self._engine.generate(messages, sampling)
            elif isinstance(event, ev.PromptProgress):
                self._status.share("reading prompt", event.done, event.total)
            elif isinstance(event, ev.TextDelta):
                if event.thinking:
                    self._status.show("thinking")
                else:
                    self._write(self._cleaner.feed(event.text))
            elif isinstance(event, ev.Notice):
                self._notice(event.text)
            elif isinstance(event, ev.ReplyDone):
                self._end(event)
                return event
        raise AssertionError("unreachable: the events do not end")

    def _events(self) -> Iterator[Event]:
        cancelled = False
        while True:
            self._engine.wait_events(_WAIT_SECONDS)
            if self._interrupted() and not cancelled:
                cancelled = True
                self._status.show("stopping")
                self._engine.cancel_load()
                self._engine.cancel()
            yield from self._engine.drain()

    def _write(self, text: str) -> None:
        if text:
            self._status.clear()
            sys.stdout.write(text)
            sys.stdout.flush()
            self._last = text[-1]

    def _notice(self, text: str) -> None:
        self._status.clear()
        print("strata-tui:", text, file=sys.stderr)

    def _end(self, done: ReplyDone) -> None:
        from ..engine.events import FinishReason

        self._write(self._cleaner.finish())
        if self._last != "\n":
            self._write("\n")
        if done.reason in (FinishReason.ERROR, FinishReason.TOO_LONG):
            raise UserError(done.message or f"The reply ended: {done.reason.value}.")
        if done.reason in (FinishReason.LENGTH, FinishReason.FULL):
            why = done.message[:1].lower() + done.message[1:]
            self._notice(f"the reply was cut after {done.stats.reply_tokens} tokens: {why}")


def _prompt(words: list[str]) -> str:
    parts = [" ".join(words)]
    if sys.stdin is not None and not sys.stdin.isatty():
        try:
            parts.append(sys.stdin.buffer.read().decode("utf-8"))
        except UnicodeDecodeError as error:
            raise UserError(f"The piped input is not UTF-8 text (byte {error.start}).") from error
    prompt = "\n\n".join(part.strip("\n") for part in parts if part.strip())
    if not prompt:
        raise UserError('There is no question: strata-tui ask "..." or pipe one in.')
    return prompt


def _demo_model(status: Status) -> Path:
    from ..demo import ensure_demo_model

    try:
        return ensure_demo_model(lambda done, total: status.share("making the demo model", done, total))
    finally:
        status.clear()
