"""The line of keys says what each does now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import OptionList

from strata_tui.config import Settings
from strata_tui.engine.engine import EngineOptions
from strata_tui.sessions.portable import PortableChat, PortableMessage
from strata_tui.sessions.rows import Role
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


async def test_only_keys_that_do_something_with_the_message_are_named(start: Start) -> None:
    ask, reply = Role.USER, Role.ASSISTANT
    messages = (
        PortableMessage(None, ask, "ask", 1.0, 1.0),
        PortableMessage(0, reply, "another answer", 1.0, 1.0),
        PortableMessage(0, reply, "see\n\n```py\nx = 1\n```", 1.0, 1.0),
        PortableMessage(2, ask, "and then", 1.0, 1.0),
        PortableMessage(3, reply, "no code", 1.0, 1.0),
    )
    async with start(load=False) as run:
        [key] = run.store.add_chats([PortableChat("t", 1.0, 1.0, messages, 4)]).result()
        await run.screen.commands.open_session(key)
        await run.until(lambda: "no code" in run.shown())
        await run.pilot.press("alt+up")
        await run.until(lambda: keys(run).startswith(" y copy  esc prompt  r again  m more  f fork  f2 chats"))
        await run.pilot.press("up")
        await run.until(lambda: keys(run).startswith(" y copy  esc prompt  e edit  r again  f fork  f2 chats"))
        await run.pilot.press("up")
        every = " y copy  esc prompt  c code  r again  m more  [ ] branch  f fork"
        await run.until(lambda: keys(run).startswith(every))
        line = run.screen.query_one(KeyLine)
        await run.pilot.click(line, offset=(every.index("["), 0))
        await run.until(lambda: run.screen.flash.text == "Branch 1 of 2.")
        await run.until(lambda: keys(run).startswith(" y copy  esc prompt  r again  m more  [ ] branch  f fork"))
        await run.pilot.click(line, offset=(keys(run).index("]"), 0))
        await run.until(lambda: run.screen.flash.text == "Branch 2 of 2.")


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
