from __future__ import annotations

import random

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widgets import Static

from strata_tui.render.chunks import compile_chunks
from strata_tui.sessions.rows import Role, Status
from strata_tui.ui.chat import Turn
from strata_tui.ui.screens.chat import ChatScreen
from strata_tui.ui.themes import load_themes, own_folder
from strata_tui.ui.widgets.message_view import MessageView
from strata_tui.ui.widgets.transcript import BATCH, WINDOW, Transcript

REPLY = """Some *text* first, as in [the list][1], whose address comes last:

```python
for slot in arena:
    print(f"{slot:>4}")
```

1. one
2. two, with `code`

| a | b |
| --- | ---: |
| x | 1 |

[1]: https://example.org
"""


class TranscriptApp(App[None]):
    CSS_PATH = ChatScreen.CSS_PATH

    def __init__(self, turns: list[Turn]) -> None:
        super().__init__()
        self.turns = turns
        self.unseen = 0

    def compose(self) -> ComposeResult:
        yield Transcript()

    async def on_mount(self) -> None:
        for theme in load_themes([own_folder()]).themes.values():
            self.register_theme(theme)
        await self.transcript.show(self.turns)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def views(self) -> list[MessageView]:
        return list(self.query(MessageView))

    def on_transcript_unseen(self, event: Transcript.Unseen) -> None:
        self.unseen = event.lines


@pytest.fixture
def css(monkeypatch: pytest.MonkeyPatch) -> None:
    """Style sheets are found beside the chat screen."""
    from pathlib import Path

    import strata_tui.ui.screens.chat as module

    folder = Path(module.__file__).parent
    monkeypatch.setattr(TranscriptApp, "CSS_PATH", [folder / path for path in ChatScreen.CSS_PATH])


def turns(count: int) -> list[Turn]:
    return [Turn(Role.USER if i % 2 == 0 else Role.ASSISTANT, f"message {i}\n\nmore of it", 0.0) for i in range(count)]


def live() -> Turn:
    return Turn(Role.ASSISTANT, "", 0.0, live=True, status=Status.RUNNING)


def body(view: MessageView) -> list[str]:
    return [str(s.content) for s in view.query(".message-body Static").results(Static)]


async def settled(app: TranscriptApp, pilot: Pilot[None]) -> None:
    await pilot.pause(0.05)
    app.transcript.settle()
    await pilot.pause()


@pytest.mark.usefixtures("css")
@pytest.mark.parametrize("seed", range(6))
async def test_a_streamed_reply_ends_as_the_one_shot_render(seed: int) -> None:
    rng = random.Random(seed)
    turn = live()
    app = TranscriptApp([Turn(Role.USER, "hello", 0.0), turn])
    async with app.run_test(size=(90, 30)) as pilot:
        text = REPLY
        while text:
            cut = rng.randint(1, 40)
            turn.text += text[:cut]
            text = text[cut:]
            app.transcript.before_growth()
            app.views[1].sync()
            if rng.random() < 0.3:
                await pilot.pause()
        turn.live, turn.status = False, Status.DONE
        app.views[1].sync()
        await settled(app, pilot)
        assert body(app.views[1]) == [str(c) for c in compile_chunks(REPLY, app.transcript.text_width)]


@pytest.mark.usefixtures("css")
async def test_text_that_comes_before_the_view_is_ready_is_not_lost_or_doubled() -> None:
    turn = live()
    app = TranscriptApp([])
    async with app.run_test(size=(90, 30)) as pilot:
        turn.text = "first "
        adding = app.transcript.add(turn)
        turn.text += "second"
        await adding
        turn.live = False
        app.views[0].sync()
        await settled(app, pilot)
        assert body(app.views[0]) == ["first second"]


@pytest.mark.usefixtures("css")
async def test_long_chats_mount_a_window_and_load_the_rest_on_scrolling() -> None:
    app = TranscriptApp(turns(57))
    async with app.run_test(size=(90, 30)) as pilot:
        await settled(app, pilot)
        assert len(app.views) == WINDOW
        assert app.transcript.is_vertical_scroll_end
        top = app.views[0].turn.text
        app.transcript.scroll_home(animate=False)
        await settled(app, pilot)
        await settled(app, pilot)
        assert len(app.views) == WINDOW + BATCH
        assert app.views[BATCH].turn.text == top
        assert app.transcript.scroll_y > 0  # what was read stays in view
        for _ in range(3):
            app.transcript.scroll_home(animate=False)
            await settled(app, pilot)
            await settled(app, pilot)
        assert [v.turn.text for v in app.views] == [t.text for t in app.turns]
        assert not app.query_one("#earlier").display


@pytest.mark.usefixtures("css")
async def test_it_follows_only_while_the_end_is_shown() -> None:
    turn = live()
    app = TranscriptApp([*turns(12), turn])
    async with app.run_test(size=(90, 30)) as pilot:
        view = app.views[-1]

        async def grow(text: str) -> None:
            turn.text += text
            app.transcript.before_growth()
            view.sync()
            await settled(app, pilot)

        await grow("line\n\n" * 5)
        assert app.transcript.is_vertical_scroll_end and app.unseen == 0
        app.transcript.scroll_up(animate=False)
        await settled(app, pilot)
        place = app.transcript.scroll_y
        await grow("line\n\n" * 5)
        assert app.transcript.scroll_y == place
        assert app.unseen == 10
        app.transcript.follow()
        await settled(app, pilot)
        assert app.transcript.is_vertical_scroll_end and app.unseen == 0
        await grow("line\n\n" * 5)
        assert app.transcript.is_vertical_scroll_end


@pytest.mark.usefixtures("css")
async def test_scrolling_a_short_chat_does_not_keep_it_from_following() -> None:
    turn = live()
    app = TranscriptApp([turn])
    async with app.run_test(size=(90, 30)) as pilot:
        app.transcript.scroll_up(animate=False)
        await settled(app, pilot)
        turn.text = "line\n\n" * 40
        app.transcript.before_growth()
        app.views[0].sync()
        await settled(app, pilot)
        assert app.transcript.is_vertical_scroll_end and app.transcript.max_scroll_y > 0


@pytest.mark.usefixtures("css")
async def test_a_resize_lays_tables_out_again_and_loses_nothing() -> None:
    turn = live()
    app = TranscriptApp([Turn(Role.ASSISTANT, REPLY, 0.0), turn])
    async with app.run_test(size=(100, 30)) as pilot:
        turn.text = REPLY[:150]
        app.views[1].sync()
        await pilot.resize_terminal(62, 20)
        await pilot.pause(0.3)
        turn.text = REPLY
        app.views[1].sync()
        turn.live = False
        app.views[1].sync()
        await settled(app, pilot)
        wanted = [str(c) for c in compile_chunks(REPLY, app.transcript.text_width)]
        assert body(app.views[0]) == wanted
        assert body(app.views[1]) == wanted


@pytest.mark.usefixtures("css")
async def test_thinking_is_live_and_folds_when_the_reply_begins() -> None:
    turn = live()
    app = TranscriptApp([turn])
    async with app.run_test(size=(90, 30)) as pilot:
        turn.thinking, turn.thinking_seconds = "so \x1b[31mmany\n" * 20, 2.0
        app.views[0].sync()
        await settled(app, pilot)
        box = app.query_one(".thinking-box")
        assert box.display and box.size.height == 6
        assert "\x1b" not in str(app.query_one(".thinking-text", Static).content)
        turn.text = "done"
        app.views[0].sync()
        await settled(app, pilot)
        assert not box.display and not app.views[0].unfolded
        app.transcript.fold_thinking()
        await settled(app, pilot)
        assert box.display and box.size.height > 6
        assert "Thought for 2.00 s" in str(app.query_one(".thinking-title", Static).content)


@pytest.mark.usefixtures("css")
async def test_a_persons_text_is_shown_as_typed_without_control_characters() -> None:
    app = TranscriptApp([Turn(Role.USER, "[b]*not* bold[/b]\x1b]0;title\x07 \x9b5m", 0.0)])
    async with app.run_test(size=(90, 30)):
        assert body(app.views[0])[0].startswith("[b]*not* bold[/b] ")
        assert not any(c in body(app.views[0])[0] for c in "\x1b\x07\x9b")
