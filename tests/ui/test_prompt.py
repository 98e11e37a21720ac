from __future__ import annotations

from textual.app import App, ComposeResult
from textual.events import Key, Paste

from strata_tui.ui.attachments import attachment
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

    def on_prompt_recalled(self) -> None:
        self.prompt.show_older()  # as in a chat without messages

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


async def test_up_and_down_at_the_edges_go_through_what_was_sent() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        prompt = app.prompt
        await pilot.press(*"one", "enter", *"two", "ctrl+j", "x", "enter", *"now")
        await pilot.press("up")
        assert prompt.text == "two\nx"
        await pilot.press("down")  # inside the text: a line down
        assert prompt.text == "two\nx"
        await pilot.press("up", "up")
        assert prompt.text == "one"
        await pilot.press("up")
        assert prompt.text == "one"
        await pilot.press("down", "down", "down")
        assert prompt.text == "now"


async def test_in_a_long_line_up_moves_first() -> None:
    app = PromptApp()
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.press("a", "enter")
        app.prompt.insert("word " * 20)
        await pilot.press("up")
        assert app.prompt.text == "word " * 20
        await pilot.press("up", "up", "up")
        assert app.prompt.text == "a"


async def test_a_long_paste_is_attached_and_sent_whole() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        text = "".join(f"line {n}\n" for n in range(312))
        await pilot.press(*"look:")
        app.post_message(Paste(text))
        await pilot.pause()
        assert (app.prompt.text, [a.label for a in app.prompt.attached]) == ("look:", ["[pasted 312 lines]"])
        await pilot.press("enter")
        assert app.sent == [f"look:\n\nPasted text (312 lines):\n```\n{text}```"]
        assert (app.prompt.message, list(app.prompt.attached)) == ("", [])
        await pilot.press("up")
        assert app.prompt.text == "look:" and app.prompt.attached[0].text == text


async def test_a_command_leaves_the_attachments_for_the_message() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        app.prompt.attach(attachment("x", "a.py"))
        app.prompt.attach(attachment("y", "a.py"))
        await pilot.press(*"/help", "enter")
        assert app.sent == ["/help"] and [a.text for a in app.prompt.attached] == ["y\n"]
        await pilot.press("enter")
        assert app.sent[1] == "File `a.py` (1 line):\n```py\ny\n```"


async def test_a_message_put_back_has_its_attachments_again() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        app.prompt.attach(attachment("x", "a.py"))
        await pilot.press(*"see", "enter", *"new")
        app.prompt.attach(attachment("y", "b.py"))
        app.prompt.put_back(app.sent[0])
        assert app.prompt.text == "see\nnew" and [a.name for a in app.prompt.attached] == ["a.py", "b.py"]


def keys(text: str) -> list[Key]:
    """The keys of a text that arrives in one piece."""
    found = [Key("enter", None) if c == "\n" else Key(c, c) for c in text]
    for key in found:
        key.time = found[0].time
    return found


async def test_a_paste_that_arrives_as_keys_is_not_sent() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        for key in keys("first line\nb\nlast one\n"):
            app.post_message(key)
        await pilot.pause(0.2)
        assert (app.sent, app.prompt.text) == ([], "first line\nb\nlast one\n")


async def test_a_line_typed_at_once_is_sent() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        for key in keys("a whole line\n"):
            app.post_message(key)
        await pilot.pause(0.2)
        assert (app.sent, app.prompt.text) == (["a whole line"], "")


async def test_escape_characters_are_not_pasted() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        app.post_message(Paste("a\x1b[31mb\rc"))
        await pilot.pause()
        assert app.prompt.text == "ab\nc"
