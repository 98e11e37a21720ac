"""The app on the real engine: a small random model, a store and a settings file of its own for each test."""

from __future__ import annotations

import asyncio
import html
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from strata_tui.config import ChatOptions, Given, Settings
from strata_tui.engine.engine import Engine, EngineOptions
from strata_tui.sections import Sections
from strata_tui.sessions.store import Store
from strata_tui.ui.app import StrataApp
from strata_tui.ui.screens.chat import ChatScreen
from strata_tui.ui.widgets.prompt import Prompt

_TEXT = re.compile(r'<text[^>]* y="([0-9.]+)"[^>]*>([^<]*)</text>')
LIMIT = 30.0  # seconds, after which a condition is taken to never become true


@dataclass
class Running:
    """The app under test and what it works with."""

    app: StrataApp
    pilot: Pilot[int]
    engine: Engine
    store: Store
    options: ChatOptions

    @property
    def screen(self) -> ChatScreen:
        return self.app.chat_screen

    @property
    def prompt(self) -> Prompt:
        return self.screen.prompt

    async def until(self, condition: Callable[[], object]) -> None:
        """Lets the app run until the condition holds."""
        end = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < end, "the condition never became true"
            await self.pilot.pause(0.02)
        await self.pilot.pause()

    async def loaded(self) -> None:
        await self.until(lambda: self.screen.model is not None and self.screen.snapshot.model is not None)

    async def say(self, text: str) -> None:
        """Types a text and presses enter."""
        self.prompt.insert(text)
        await self.pilot.press("enter")
        await self.pilot.pause()

    async def reply(self) -> None:
        """Lets the running reply come to its end."""
        await self.until(lambda: not self.screen.replies.busy)

    def shown(self) -> str:
        """What is drawn on the screen, without styles; blanks that end a run of one style may be missing."""
        rows: dict[float, str] = {}
        for y, text in _TEXT.findall(self.app.export_screenshot()):
            rows[float(y)] = rows.get(float(y), "") + html.unescape(text).replace("\xa0", " ")
        return "\n".join(rows[y] for y in sorted(rows))


Start = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def start(tmp_path: Path, tiny_model: Callable[[str], Path]) -> Start:
    """`start(size=..., model=..., settings=..., engine=...)`: the running app, on the CPU."""

    @asynccontextmanager
    async def run(
        size: tuple[int, int] = (120, 40),
        model: Path | None = None,
        settings: Settings | None = None,
        engine: EngineOptions | None = None,
        resume: int | None = None,
        load: bool = True,
        sections: Sections = Sections(),  # noqa: B008 (frozen)
        engine_log: bool = False,
    ) -> AsyncIterator[Running]:
        engine = engine or EngineOptions(gpu=-1, threads=1, context=512)
        engine = replace(engine, log=tmp_path / "engine.log") if engine_log else engine
        settings = settings or Settings(temperature=0.0, max_tokens=24)
        defaults = Settings()
        chosen = {f.name: getattr(settings, f.name) for f in fields(Settings)}
        given = Given(file={n: v for n, v in chosen.items() if v != getattr(defaults, n)}, sections=sections)
        options = ChatOptions(
            settings,
            engine,
            model or tiny_model("qwen3moe"),
            resume=resume,
            store=tmp_path / "chats.sqlite3",
            settings_file=tmp_path / "config" / "settings.toml",
            given=given,
        )
        problems: deque[Exception] = deque()
        with Store(options.store, on_error=problems.append) as store:
            real = Engine(engine)
            try:
                app = StrataApp(options, real, store, problems)
                async with app.run_test(size=size) as pilot:
                    app.chat_screen.prompt.cursor_blink = False
                    running = Running(app, pilot, real, store, options)
                    if load:
                        await running.loaded()
                    yield running
            finally:
                await asyncio.to_thread(real.close)

    return run


@pytest.fixture
def slow_engine() -> EngineOptions:
    """Few slots, and copies that are late: a reply that lasts long enough to be stopped."""
    return EngineOptions(gpu=-1, threads=1, context=512, slots=8, copy_delay_us=3000)
