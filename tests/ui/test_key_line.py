"""The line of keys says what each does now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import OptionList

from strata_tui.config import Settings
from strata_tui.engine.engine import EngineOptions
from strata_tui.ui.widgets.key_line import KeyLine

if TYPE_CHECKING:
    from tests.ui.conftest import Running, Start


def keys(run: Running) -> str:
    return run.screen.query_one(KeyLine).visual.plain  # type: ignore[attr-defined, no-any-return]


async def test_escape_is_named_for_what_it_does_now(start: Start, slow_engine: EngineOptions) -> None:
    async with start(size=(80, 24), engine=slow_engine, settings=Settings(temperature=0.0, max_tokens=400)) as run:
        await run.until(lambda: keys(run).startswith(" enter send  ^j line  f2 chats"))  # escape would do nothing
        await run.say("first")
        await run.until(lambda: "esc stop" in keys(run))
        await run.say("second")
        await run.until(lambda: "esc take back" in keys(run))
        await run.pilot.press("escape")
        await run.until(lambda: "esc stop" in keys(run))
        await run.pilot.press("f2")
        await run.until(lambda: "esc close" in keys(run))
        await run.pilot.press("escape", "escape")
        await run.reply()
        await run.until(lambda: "esc" not in keys(run))
        await run.pilot.press("alt+up")
        await run.until(lambda: "esc prompt" in keys(run))
        await run.pilot.press("up", "e")
        await run.until(lambda: "esc leave" in keys(run))
        await run.pilot.press("escape")
        await run.until(lambda: "esc" not in keys(run))


async def test_the_filter_of_the_chats_has_its_keys_there(start: Start) -> None:
    async with start(load=False, size=(80, 24)) as run:
        await run.pilot.press("f2", "f")
        await run.until(lambda: keys(run).startswith(" enter list  esc clear  "))


async def test_a_new_chat_leaves_no_other_marked_in_the_list(start: Start) -> None:
    async with start(size=(200, 50)) as run:
        chats = run.screen.chats.query_one(OptionList)
        await run.say("first")
        await run.reply()
        await run.until(lambda: chats.highlighted is not None)
        await run.pilot.press("ctrl+n")
        await run.until(lambda: chats.highlighted is None)
        await run.pilot.press("f2")
        await run.until(lambda: run.screen.chats.highlighted is not None)  # so that enter opens it
