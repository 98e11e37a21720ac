from __future__ import annotations

import random

import pytest
from textual.widgets import Static

from strata_tui.render.chunks import compile_chunks
from strata_tui.sessions.rows import Role, Status
from strata_tui.ui.chat import Turn
from strata_tui.ui.widgets.chunks import Piece
from strata_tui.ui.widgets.message_window import BATCH, WINDOW

from .transcript_app import TranscriptApp, body, filled, live, settled, turns

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


async def test_text_that_comes_before_the_view_is_ready_is_not_lost_or_doubled() -> None:
    turn = live()
    app = TranscriptApp([])
    async with app.run_test(size=(90, 30)) as pilot:
        turn.text = "first "
        app.turns.append(turn)
        adding = app.transcript.refresh_turns(follow=True)
        turn.text += "second"
        await adding
        turn.live = False
        app.views[0].sync()
        await settled(app, pilot)
        assert body(app.views[0]) == ["first second"]


async def test_long_chats_mount_a_window_and_load_the_rest_on_scrolling() -> None:
    app = TranscriptApp(turns(57))
    async with app.run_test(size=(90, 30)) as pilot:
        await filled(app, pilot)
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


async def test_far_away_a_window_is_mounted_in_the_place_of_the_end() -> None:
    app = TranscriptApp(turns(400))
    shown = [turn.text for turn in app.turns]
    async with app.run_test(size=(90, 30)) as pilot:
        await filled(app, pilot)
        await app.transcript.reveal(app.turns[100])
        await settled(app, pilot)
        view = app.transcript.view_of(app.turns[100])
        assert view is not None and view.region.y == app.transcript.content_region.y
        assert [v.turn.text for v in app.views] == shown[95 : 95 + WINDOW]
        assert (app.unseen, app.later) == (0, 400 - 95 - WINDOW)
        app.transcript.before_growth()  # as when a reply grows at the end, which is not shown
        app.transcript.scroll_end(animate=False)
        await settled(app, pilot)
        await settled(app, pilot)
        assert [v.turn.text for v in app.views] == shown[95 : 95 + WINDOW + BATCH]
        assert not app.transcript.is_vertical_scroll_end  # what was read stays in view
        app.transcript.focus()
        await app.transcript.select_first()
        await settled(app, pilot)
        assert [v.turn.text for v in app.views] == shown[:WINDOW] and app.transcript.scroll_y == 0
        assert app.transcript.selected is app.turns[0] and not app.query_one("#earlier").display
        app.turns.append(Turn(Role.USER, "one more", 0.0))
        await app.transcript.refresh_turns(follow=False)
        await settled(app, pilot)
        assert [v.turn.text for v in app.views] == shown[:WINDOW]
        await app.transcript.select_last()
        await settled(app, pilot)
        assert [v.turn.text for v in app.views] == [*shown[-WINDOW + 1 :], "one more"]
        assert app.transcript.is_vertical_scroll_end and (app.unseen, app.later) == (0, 0)
        assert app.transcript.selected is app.turns[-1]


async def test_moving_down_out_of_the_window_mounts_what_follows() -> None:
    app = TranscriptApp(turns(60))
    async with app.run_test(size=(90, 30)) as pilot:
        await filled(app, pilot)
        app.transcript.focus()
        await app.transcript.select_first()
        for _ in range(90):  # a step may also scroll a part of a message that is not all in sight
            if app.transcript.selected is app.turns[-1]:
                break
            assert await app.transcript.move(1)
            await pilot.pause()
        await settled(app, pilot)
        assert app.transcript.selected is app.turns[-1] and (app.unseen, app.later) == (0, 0)


async def test_it_follows_only_while_the_end_is_shown() -> None:
    turn = live()
    app = TranscriptApp([*turns(12), turn])
    async with app.run_test(size=(90, 30)) as pilot:
        await filled(app, pilot)
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


async def test_thinking_is_live_and_folds_when_the_reply_begins() -> None:
    turn = live()
    app = TranscriptApp([turn])
    async with app.run_test(size=(90, 30)) as pilot:
        turn.thinking = "".join(f"so \x1b[31mmany {n}\n" for n in range(20))
        app.views[0].sync()
        await settled(app, pilot)
        box = app.query_one(".thinking-box", Static)

        def whole() -> int:
            return sum(piece.size.height for piece in app.query(Piece) if piece.parent is box.parent and piece.display)

        assert box.display and box.size.height == 6 and whole() == 0
        assert str(box.content) == "\n".join(f"so many {n}" for n in range(14, 20))
        app.views[0].fold(False)
        turn.thinking += "and more"
        app.views[0].sync()
        await settled(app, pilot)
        assert whole() == 21 and not box.display
        app.views[0].fold(True)
        turn.text, turn.thinking_seconds, turn.thinking_tokens = "done", 2.0, 412
        app.views[0].sync()
        await settled(app, pilot)
        assert not box.display and whole() == 0 and not app.views[0].unfolded
        app.transcript.fold_thinking()
        await settled(app, pilot)
        assert whole() == 21
        assert "Thought for 2.00 s, 412 tokens" in str(app.query_one(".thinking-title", Static).content)


async def test_a_persons_text_is_shown_as_typed_without_control_characters() -> None:
    app = TranscriptApp([Turn(Role.USER, "[b]*not* bold[/b]\x1b]0;title\x07 \x9b5m", 0.0)])
    async with app.run_test(size=(90, 30)):
        assert body(app.views[0])[0].startswith("[b]*not* bold[/b] ")
        assert not any(c in body(app.views[0])[0] for c in "\x1b\x07\x9b")
