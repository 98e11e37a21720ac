"""What is photographed: each scene brings the running app into a state, the camera takes it, and the app goes back."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from textual.pilot import Pilot

from strata_tui.engine.events import EngineState, LoadProgress
from strata_tui.ui.app import StrataApp
from strata_tui.ui.attachments import attachment
from strata_tui.ui.screens.chat import ChatScreen
from strata_tui.ui.screens.leaving_out import LeavingOutScreen
from strata_tui.ui.screens.options import OptionsScreen
from strata_tui.ui.screens.search import SearchScreen
from strata_tui.ui.widgets.load_bar import LoadBar

from . import sample

LIMIT = 60.0  # seconds


@dataclass
class Stage:
    """The app, and ids of the chats in it."""

    app: StrataApp
    pilot: Pilot[int]
    long_chat: int

    @property
    def screen(self) -> ChatScreen:
        return self.app.chat_screen

    async def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < end, "the condition never became true"
            await self.pilot.pause(0.02)
        await self.settled()

    async def settled(self) -> None:
        for _ in range(3):
            await self.pilot.pause(0.02)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settled()

    async def do(self, action: str, argument: str = "") -> None:
        await self.screen.commands.perform(action, argument)
        await self.settled()

    async def back(self) -> None:
        """To the bare chat screen."""
        for _ in range(4):
            if self.app.screen is not self.screen:
                await self.press("escape")
        self.screen.flash.clear()
        self.screen.prompt.load_message("")
        self.screen.prompt.focus()
        self.screen.panels.close_over()
        await self.settled()

    async def long(self) -> None:
        """Opens the long chat."""
        await self.screen.commands.open_session(self.long_chat)
        self.screen.transcript.follow()
        await self.settled()


Act = Callable[[Stage], AsyncIterator[None]]
SCENES: dict[str, Callable[[Stage], object]] = {}


def scene(act: Callable[[Stage], AsyncIterator[None]]) -> Callable[[Stage], AsyncIterator[None]]:
    """Adds a scene under its function's name; what stands after its yield puts things back."""
    SCENES[act.__name__.replace("_", "-")] = asynccontextmanager(act)
    return act


def page(name: str, action: str, argument: str = "", then: Callable[[Stage], Awaitable[None]] | None = None) -> None:
    """Adds a scene that an action of the table brings up."""

    async def act(stage: Stage) -> AsyncIterator[None]:
        await stage.do(action, argument)
        if then is not None:
            await then(stage)
        yield

    act.__name__ = name
    scene(act)


@scene
async def welcome(stage: Stage) -> AsyncIterator[None]:
    await stage.do("new")
    yield


@scene
async def slash_menu(stage: Stage) -> AsyncIterator[None]:
    stage.screen.prompt.insert("/")
    await stage.settled()
    yield


@scene
async def chat_end(stage: Stage) -> AsyncIterator[None]:
    await stage.long()
    yield


@scene
async def chat_top(stage: Stage) -> AsyncIterator[None]:
    stage.screen.transcript.scroll_home(animate=False, immediate=True)
    await stage.settled()
    yield


async def _select(stage: Stage, number: int) -> None:
    if stage.screen.chat.session != stage.long_chat:  # this scene alone was asked for
        await stage.long()
    transcript = stage.screen.transcript
    transcript.focus()
    await stage.settled()
    transcript.select(stage.screen.chat.turns[number])
    await stage.settled()


@scene
async def code_selected(stage: Stage) -> AsyncIterator[None]:
    await _select(stage, 1)
    yield


@scene
async def thinking(stage: Stage) -> AsyncIterator[None]:
    await _select(stage, 1)
    stage.screen.transcript.fold_selected()
    stage.screen.transcript.scroll_home(animate=False, immediate=True)
    await stage.settled()
    yield
    stage.screen.transcript.fold_selected()


@scene
async def table_selected(stage: Stage) -> AsyncIterator[None]:
    await _select(stage, 3)
    yield


@scene
async def edit_message(stage: Stage) -> AsyncIterator[None]:
    await _select(stage, 2)
    await stage.press("e")
    yield
    await stage.press("escape")


@scene
async def attachments(stage: Stage) -> AsyncIterator[None]:
    prompt = stage.screen.prompt
    prompt.attach(attachment("line\n" * 312))
    prompt.attach(attachment("x = 1\n" * 40, "src/strata/main.py"))
    prompt.insert("What does this do, and why?\n日本語 and a second line")
    await stage.press("shift+tab")
    yield


page("chats", "chats")


@scene
async def chats_filter(stage: Stage) -> AsyncIterator[None]:
    await stage.do("chats")
    stage.screen.chats.focus_filter()
    await stage.press(*"sl")
    yield
    await stage.press("escape")


async def _words(stage: Stage) -> None:
    page = stage.app.screen
    assert isinstance(page, SearchScreen)
    await stage.until(lambda: bool(page._hits))
    await stage.pilot.pause(0.3)


page("search", "search", "slot", _words)
page("options", "options")


async def _change(stage: Stage) -> None:
    page = stage.app.screen
    assert isinstance(page, OptionsScreen)
    await stage.press("right", "enter", *"warm", "enter")


page("options_change", "options", "temperature", _change)


async def _enter(stage: Stage) -> None:
    await stage.press("enter")


page("system_prompt", "options", "system", _enter)


async def _found(stage: Stage) -> None:
    await stage.until(lambda: not stage.app.screen._looking)  # type: ignore[attr-defined]


page("models", "model", "", _found)
page("help", "help")


async def _typed(stage: Stage) -> None:
    await stage.pilot.pause(0.3)
    await stage.press(*"chat")
    await stage.pilot.pause(0.5)


page("palette", "palette", "", _typed)
page("themes", "theme")
page("rename", "rename")
page("export", "export")
page("bin", "bin")


@scene
async def code_picker(stage: Stage) -> AsyncIterator[None]:
    await _select(stage, 1)
    await stage.press("c")
    yield


async def _pressed(stage: Stage) -> None:
    await stage.press("f7", "ctrl+p", "x", "alt+x")


page("keys", "keys", "", _pressed)
page("plan", "plan")


async def _measured(stage: Stage) -> None:
    await stage.until(lambda: getattr(stage.app.screen, "found", None))


async def _leaving(stage: Stage) -> None:
    await _measured(stage)
    await stage.press("3")
    await stage.until(lambda: isinstance(stage.app.screen, LeavingOutScreen))
    await stage.pilot.pause(0.3)


page("room", "make_room", "", _measured)
page("leaving_out", "make_room", "", _leaving)
page("log", "log")


@scene
async def error(stage: Stage) -> AsyncIterator[None]:
    await stage.long()
    stage.screen.prompt.insert("/nosuch thing")
    await stage.press("enter")
    yield


@scene
async def load_failed(stage: Stage) -> AsyncIterator[None]:
    text = "/models/broken.gguf is not a whole GGUF: its tensor data ends 5 000 bytes early. Fetch it again with /pull."
    stage.screen.flash.say(text, error=True)
    await stage.settled()
    yield


@scene
async def notice(stage: Stage) -> AsyncIterator[None]:
    stage.screen.flash.say("Deleted: Dinner for six   /undo (alt+u) brings it back", stay=True)
    await stage.settled()
    yield


@scene
async def loading(stage: Stage) -> AsyncIterator[None]:
    bar = stage.screen.query_one("#load", LoadBar)
    bar.show(LoadProgress("filling slots", 5_300_000_000, 8_550_000_000))
    stage.screen.query_one("#pull", LoadBar).show(
        LoadProgress("Qwen3-30B-A3B-Q4_K_M.gguf", 3_200_000_000, 18_556_685_824)
    )
    await stage.settled()
    yield
    bar.hide()
    stage.screen.query_one("#pull", LoadBar).hide()


@scene
async def engine_panel(stage: Stage) -> AsyncIterator[None]:
    if not stage.screen.engine_panel.display:
        await stage.do("engine")
    yield


async def _gpu(stage: Stage, state: EngineState) -> None:
    screen = stage.screen
    snapshot = sample.gpu_snapshot(state)
    screen.engine_panel.forget()
    for n in range(60):
        wave = math.sin(n / 5) * math.cos(n / 3)
        rates = replace(snapshot.rates, hit_rate=0.86 + 0.1 * wave, evictions_per_second=max(0.0, 60 - 90 * wave))
        screen.engine_panel.history.add(replace(snapshot, rates=rates))
    screen.engine.snapshot = lambda: snapshot  # type: ignore[method-assign]
    screen.sample_now()
    await stage.settled()


@scene
async def gpu_panel(stage: Stage) -> AsyncIterator[None]:
    real = stage.screen.engine.snapshot
    if not stage.screen.engine_panel.display:
        await stage.do("engine")
    await _gpu(stage, EngineState.DECODE)
    yield
    stage.screen.engine.snapshot = real  # type: ignore[method-assign]


@scene
async def gpu_line(stage: Stage) -> AsyncIterator[None]:
    real = stage.screen.engine.snapshot
    await _gpu(stage, EngineState.IDLE)
    yield
    stage.screen.engine.snapshot = real  # type: ignore[method-assign]
    stage.screen.sample_now()


async def _run(stage: Stage, text: str) -> None:
    stage.screen.prompt.insert(text)
    await stage.press("enter")
    await stage.until(
        lambda: (
            (run := stage.screen.replies.running) is not None
            and len(run.turn.text) > 60
            and stage.screen.snapshot.rates.decode_tokens_per_second
        )
    )


@scene
async def running(stage: Stage) -> AsyncIterator[None]:
    """Last, because it adds to the chat."""
    await stage.do("new")
    await _run(stage, "Write a long story about a lighthouse, a cat and a storm.")
    yield


@scene
async def queued(stage: Stage) -> AsyncIterator[None]:
    stage.screen.prompt.insert("And then what happens to the cat, when the light goes out?")
    await stage.press("enter")
    stage.screen.transcript.release_anchor()
    stage.screen.transcript.scroll_home(animate=False, immediate=True)
    await stage.pilot.pause(0.5)
    yield
    stage.screen.turns.take_back()
    stage.screen.replies.stop()
    await stage.until(lambda: not stage.screen.replies.busy)


@scene
async def stopped(stage: Stage) -> AsyncIterator[None]:
    await stage.settled()
    yield


@scene
async def too_small(stage: Stage) -> AsyncIterator[None]:
    size = stage.app.size
    await stage.pilot.resize_terminal(52, 12)
    await stage.settled()
    yield
    await stage.pilot.resize_terminal(*size)
