"""The options of a chat, on the whole screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import Input, Static, TextArea

from strata_tui.config import Settings, load_given
from strata_tui.parameters import Scope, Source
from strata_tui.ui.screens.edit_screen import EditScreen
from strata_tui.ui.screens.options import OptionsScreen

if TYPE_CHECKING:
    from tests.ui.conftest import Running, Start


def screen(run: Running) -> OptionsScreen:
    found = run.app.screen
    assert isinstance(found, OptionsScreen)
    return found


async def test_values_sources_and_ranges_are_shown(start: Start) -> None:
    async with start(size=(80, 24), settings=Settings(top_p=0.5, system="Be brief.")) as run:
        await run.pilot.press("alt+o")
        await run.until(lambda: isinstance(run.app.screen, OptionsScreen))
        shown = run.shown()
        for row in ("system prompt", "Be brief.", "top-p", "0.5", "settings", "temperature", "0.7", "default"):
            assert row in shown, row
        await run.pilot.press("down", "down")
        await run.pilot.pause()
        assert "0: always the likeliest" in run.shown() and "a number from 0 to 10" in run.shown()
        await run.pilot.press("escape")
        assert run.app.screen is run.screen


async def test_a_chats_own_value_counts_and_is_kept(start: Start) -> None:
    async with start() as run:
        run.screen.commands.do_options("temperature")
        await run.until(lambda: isinstance(run.app.screen, OptionsScreen))
        await run.pilot.press("enter", *"99", "enter")
        await run.until(lambda: "from 0 to 10" in str(screen(run).query_one("#options-news", Static).content))
        news = str(screen(run).query_one("#options-news", Static).content)
        assert news.startswith("! temperature"), "an error, told without colour"
        entry = screen(run).query_one(Input)
        assert entry.display and entry.value == "99"
        assert "enter keeps, esc leaves" in run.shown() and "del takes back" not in run.shown()
        entry.value = "0.25"
        await run.pilot.press("enter")
        await run.until(lambda: run.screen.options.value("temperature").source is Source.CHAT)
        assert "0.25" in run.shown() and "this chat" in run.shown()
        assert "enter changes, del takes back" in run.shown()
        await run.pilot.press("escape")
        await run.say("hello")
        await run.until(lambda: run.screen.chat.turns)
        await run.reply()
        run.store.flush()
        [info] = run.store.list_sessions()
        assert dict(info.options) == {"temperature": 0.25}
        params = run.store.branch(info.id)[1].params
        assert params is not None and params["temperature"] == 0.25 and params["top_k"] == 40
        await run.say("/new")
        assert run.screen.options.value("temperature").source is Source.FILE
        await run.screen.commands.open_session(info.id)
        assert run.screen.options.value("temperature").value == 0.25


async def test_the_model_and_all_chats(start: Start) -> None:
    async with start() as run:
        run.screen.commands.do_options("top_k")
        await run.until(lambda: isinstance(run.app.screen, OptionsScreen))
        await run.pilot.press("right", "enter", *"7", "enter")
        await run.until(lambda: run.screen.options.at(Scope.MODEL, "top_k") == 7)
        await run.pilot.press("right", "enter", *"9", "enter")
        await run.until(lambda: run.screen.options.at(Scope.ALL, "top_k") == 9)
        await run.until(lambda: "this model says otherwise" in run.shown())
        given = load_given({}, run.options.settings_file, {})
        assert run.screen.model is not None
        assert given.per_model == {run.screen.model.name: {"top_k": 7}} and given.file == {"top_k": 9}
        await run.pilot.press("left", "delete")
        await run.until(lambda: run.screen.options.value("top_k").value == 9)
        assert load_given({}, run.options.settings_file, {}).file == {"top_k": 9}


async def test_the_system_prompt_has_several_lines(start: Start) -> None:
    async with start(size=(80, 24)) as run:
        await run.say("/system")
        await run.until(lambda: isinstance(run.app.screen, EditScreen))
        await run.pilot.press(*"Be", "enter", *"brief.", "ctrl+s")
        await run.until(lambda: run.screen.chat.system == "Be\nbrief.")
        await run.say("/system")
        await run.until(lambda: isinstance(run.app.screen, EditScreen))
        assert run.app.screen.query_one(TextArea).text == "Be\nbrief."
        await run.pilot.press("x", "escape")
        assert run.screen.chat.system == "Be\nbrief."
        await run.say("hello")
        await run.until(lambda: run.screen.chat.turns)
        assert run.screen.chat.messages()[0].text == "Be\nbrief."
        await run.reply()
        await run.say("/system Be long.")
        run.store.flush()
        assert run.store.list_sessions()[0].system == "Be long."


async def test_a_prompt_for_all_is_that_of_this_and_of_new_chats(start: Start) -> None:
    async with start() as run:
        await run.say("/set all system Answer in French.")
        await run.until(lambda: run.screen.chat.system == "Answer in French.")
        await run.say("/set system Only here.")
        assert run.screen.chat.system == "Only here."
        await run.say("/set system auto")
        assert run.screen.options.value("system").source is Source.CHAT  # a prompt may be any text
        await run.say("/new")
        assert run.screen.chat.system == "Answer in French."


async def test_set_by_a_line(start: Start) -> None:
    async with start() as run:
        await run.say("/set top-p 0.5")
        await run.until(lambda: run.screen.flash.text == "Top-p: 0.5 (this chat).")
        await run.say("/set top_p")
        assert run.screen.flash.text == "Top-p: 0.5 (this chat)."
        await run.say("/set top_p auto")
        assert run.screen.flash.text == "Top-p: 0.95 (default)."
        await run.say("/set top_p 3")
        assert "from 0 to 1" in run.screen.flash.text
        await run.say("/set nonsense 3")
        assert "There is no option nonsense" in run.screen.flash.text
        await run.say("/set model")
        await run.until(lambda: isinstance(run.app.screen, OptionsScreen))


async def test_options_are_completed(start: Start) -> None:
    async with start(load=False) as run:
        await run.pilot.press(*"/set pres")
        await run.until(lambda: run.screen.menu.open)
        await run.pilot.press("tab")
        await run.until(lambda: run.prompt.text.startswith("/set presence_penalty"))
        run.prompt.clear()
        await run.pilot.press(*"/set model tem")
        await run.until(lambda: [c.text for c in run.screen.menu.choices] == ["model temperature"])
        await run.pilot.press("tab")
        await run.until(lambda: run.prompt.text.startswith("/set model temperature"))


async def test_a_model_without_a_choice_of_thinking_says_so(start: Start) -> None:
    async with start() as run:
        await run.say("/thinking off")
        assert "chat template does not know thinking off" in run.screen.flash.text
        await run.say("/thinking")
        assert "no variable for thinking" in run.screen.flash.text


async def test_options_of_a_chat_survive_until_it_is_stored(start: Start) -> None:
    async with start(load=False) as run:
        await run.say("/set seed 5")
        await run.pilot.press(*"a draft", "ctrl+n")
        await run.until(lambda: run.prompt.text == "")
        run.store.flush()
        [info] = run.store.list_sessions()
        assert dict(info.options) == {"seed": 5} and info.draft == "a draft"
