"""The measured program of `strata-tui bench ui`: the real screen, with a probe of its event loop.

Started on a pseudo-terminal with a Spec as JSON; when it ends it writes what the probe saw to a pipe.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from ..engine.engine import Engine

_E = TypeVar("_E")

PROBE_SECONDS = 0.005
LOOK_SECONDS = 0.25
TYPING_SECONDS = 0.5  # between the load and the message


@dataclass(frozen=True, slots=True)
class Spec:
    """What to run. `text` empty: the real engine with `model` (None: the demo model)."""

    folder: str  # for the store and the settings
    report: int  # file descriptor of the pipe
    text: str = ""  # "prose" or "code"
    tokens: int = 2000
    rate: float = 200.0
    model: str | None = None
    threads: int | None = None
    gpu: int | None = None
    probe: bool = True  # asks the event loop, which costs up to 1 % of a core
    asked: str = ""  # without a screen: the real engine answers this


@dataclass(slots=True)
class Report:
    """Times on the monotonic clock, which the measuring process shares. A lag: how late the probe woke, in seconds."""

    lags: list[tuple[float, float]]
    started: float  # of the last reply's first text
    ended: float
    decode_rate: float | None
    reply_tokens: int
    screen_seconds: float = 0.0  # processor time of the screen's thread from `started` to `ended`


def main() -> int:
    """Runs the screen until it is quit."""
    spec = Spec(**json.loads(sys.argv[1]))
    from ..config import ChatOptions, Given
    from ..engine.engine import Engine
    from ..engine.events import ReplyDone, TextDelta
    from ..engine.modes import Drafting
    from ..engine.options import EngineOptions
    from ..sessions.store import Store
    from ..ui import app as screen
    from ..ui.joined import joined
    from .ui_source import ScriptedEngine, code, prose

    report = Report([], 0.0, 0.0, None, 0)

    class ProbedApp(screen.StrataApp):
        """The app, whose event loop is asked again and again how late it is."""

        CSS_PATH = str(Path(screen.__file__).with_name("app.tcss"))

        def on_mount(self) -> None:
            self._asking = asyncio.create_task(self._ask()) if spec.probe else None

        async def _ask(self) -> None:
            while True:
                before = time.monotonic()
                await asyncio.sleep(PROBE_SECONDS)
                now = time.monotonic()
                report.lags.append((now, now - before - PROBE_SECONDS))

    folder = Path(spec.folder)
    options = EngineOptions(threads=spec.threads, gpu=spec.gpu)
    if spec.text:
        writer = {"prose": prose, "code": code}[spec.text]
        engine = cast(Engine, ScriptedEngine(writer(spec.tokens), spec.rate))
        model: Path | None = Path("scripted")
    else:
        engine, model = Engine(options), Path(spec.model) if spec.model else None
    if spec.asked:
        _answer(engine, model, spec, report)
        return _tell(report, spec)
    # without drafts: windows of several tokens round differently, and replies of different texts cannot be compared
    fixed = {"temperature": 0.0, "draft": Drafting.OFF}
    given = Given(flags=fixed | ({} if spec.text else {"max_tokens": spec.tokens}))
    chat = ChatOptions(
        given.settings,
        options,
        model,
        store=folder / "chats.sqlite3",
        settings_file=folder / "settings.toml",
        given=given,
    )
    problems: deque[Exception] = deque()
    with Store(chat.store, on_error=problems.append) as store:
        app = ProbedApp(chat, engine, store, problems)
        drain = engine.drain

        def noted() -> list[object]:
            events = drain()
            for event in joined(events):
                if isinstance(event, TextDelta) and not report.started:
                    report.started = time.monotonic()
                    report.screen_seconds = -time.thread_time()
                elif isinstance(event, ReplyDone):
                    report.ended = time.monotonic()
                    report.screen_seconds += time.thread_time()
                    report.decode_rate, report.reply_tokens = event.stats.decode_rate, event.stats.reply_tokens
            return cast(list[object], events)

        engine.drain = noted  # type: ignore[method-assign, assignment]
        try:
            app.run()
        finally:
            engine.close()
    return _tell(report, spec)


def _answer(engine: Engine, model: Path | None, spec: Spec, report: Report) -> None:
    """The same reply without a screen. Nothing is asked of the engine while it writes: each look at it would wake a
    thread beside its own.
    """
    from ..demo.build import ensure_demo_model
    from ..engine.events import Loaded, LoadFailed, Message, ReplyDone, Sampling
    from ..engine.modes import Drafting, Modes
    from ..errors import UserError

    def wait_for(kind: type[_E]) -> _E:
        while True:
            time.sleep(LOOK_SECONDS)
            for event in engine.drain():
                if isinstance(event, LoadFailed):
                    raise UserError(event.message)
                if isinstance(event, kind):
                    return event

    try:
        engine.set_modes(Modes(draft=Drafting.OFF))
        engine.open(model or ensure_demo_model())
        wait_for(Loaded)
        time.sleep(TYPING_SECONDS)
        engine.generate([Message("user", spec.asked)], Sampling(temperature=0.0, max_tokens=spec.tokens))
        stats = wait_for(ReplyDone).stats
        report.ended = time.monotonic()
        report.decode_rate, report.reply_tokens = stats.decode_rate, stats.reply_tokens
    finally:
        engine.close()


def _tell(report: Report, spec: Spec) -> int:
    with os.fdopen(spec.report, "w") as pipe:
        json.dump(asdict(report), pipe)
    return 0


if __name__ == "__main__":
    sys.exit(main())
