from __future__ import annotations

from textual.app import App, ComposeResult
from textual.events import Key, Paste

from strata_tui.ui.widgets.prompt import Prompt


class PromptApp(App[None]):
    """A prompt alone; counts the keys that reach the app."""

    BINDINGS = [(key, f"seen('{key}')", key) for key in "f6 f7 ctrl+d pageup pagedown ctrl+c alt+x escape".split()]

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []
        self.seen: list[str] = []

    def compose(self) -> ComposeResult:
        yield Prompt()

    def on_mount(self) -> None:
        self.prompt.cursor_blink = False
        self.prompt.focus()

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        self.sent.append(event.text)

    def action_seen(self, key: str) -> None:
        self.seen.append(key)


async def test_enter_sends_and_empties() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        await pilot.press(*"hi", "enter")
        assert (app.sent, app.prompt.text) == (["hi"], "")
        await pilot.press("ctrl+z")
        assert app.prompt.text == "hi"


async def test_nothing_is_sent_of_nothing() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        await pilot.press("enter", "space", "enter", "ctrl+j", "enter")
        assert app.sent == []


async def test_the_ways_to_a_new_line() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        await pilot.press("a", "ctrl+j", "b", "shift+enter", "c", "alt+enter", "d", "backslash", "enter", "e")
        assert app.prompt.text == "a\nb\nc\nd\ne"
        await pilot.press("enter")
        assert app.sent == ["a\nb\nc\nd\ne"]


async def test_a_backslash_elsewhere_is_text() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        await pilot.press("backslash", "n", "enter")
        assert app.sent == ["\\n"]


async def test_keys_in_one_burst_keep_their_order() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        for key, character in (
            ("x", "x"),
            ("backslash", "\\"),
            ("enter", None),
            ("y", "y"),
            ("enter", None),
            ("z", "z"),
        ):
            app.post_message(Key(key, character))
        await pilot.pause()
        assert (app.sent, app.prompt.text) == (["x\ny"], "z")


async def test_a_paste_is_not_sent() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        app.post_message(Paste("one\ntwo\n"))
        await pilot.pause()
        assert (app.sent, app.prompt.text) == ([], "one\ntwo\n")


async def test_keys_that_the_app_needs_reach_it() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        await pilot.press(*"f6 f7 ctrl+d pageup pagedown ctrl+c alt+x escape".split())
        assert app.seen == "f6 f7 ctrl+d pageup pagedown ctrl+c alt+x escape".split()
        assert app.prompt.text == ""


async def test_editing_keys_still_edit() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        await pilot.press(*"one two", "ctrl+w", "left", "delete", "home", "X")
        assert app.prompt.text == "Xone"


async def test_a_text_put_back_stands_before_what_was_typed_since() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        await pilot.press(*"new")
        app.prompt.put_back("old\ntext")
        assert app.prompt.text == "old\ntext\nnew"


async def test_the_rest_of_a_command_is_offered() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        await pilot.press(*"/ex")
        assert app.prompt.suggestion == "port"
        await pilot.press("right")
        assert app.prompt.text == "/export"
