"""Moving from message to message, and copying what is selected."""

from __future__ import annotations

import re

from textual.pilot import Pilot

from strata_tui.render import code_blocks
from strata_tui.sessions.rows import Role
from strata_tui.ui.chat import Turn
from strata_tui.ui.screens.code_picker import CodePicker, block_text
from strata_tui.ui.widgets.message_window import BATCH, WINDOW

from .transcript_app import TranscriptApp, filled, settled, turns

CODE = "Two:\n\n```python\nprint(1)\n```\n\n- nested:\n  ```sh\n  ls\n  ls -l\n  ```\n\n```\n\n```\n"


async def focus(app: TranscriptApp, pilot: Pilot[None]) -> None:
    """Gives the transcript the focus once the messages are there."""
    await filled(app, pilot)
    app.set_focus(None)
    await settled(app, pilot)
    app.transcript.focus()
    await settled(app, pilot)


async def move(app: TranscriptApp, pilot: Pilot[None], step: int, times: int = 1) -> str:
    for _ in range(times):
        await app.transcript.move(step)
        await pilot.pause()
    return app.transcript.selected.text if app.transcript.selected else ""


def marked(app: TranscriptApp) -> list[Turn]:
    return [view.turn for view in app.views if view.has_class("-selected")]


async def test_the_focus_selects_the_last_message_in_view_and_leaving_it_none() -> None:
    app = TranscriptApp(turns(20))
    async with app.run_test(size=(90, 30)) as pilot:
        await focus(app, pilot)
        assert app.transcript.selected is app.turns[-1] and marked(app) == [app.turns[-1]]
        app.set_focus(None)
        await settled(app, pilot)
        assert app.transcript.selected is None and marked(app) == []
        app.transcript.scroll_to(y=0, animate=False)
        await settled(app, pilot)
        app.transcript.focus()
        await settled(app, pilot)
        assert app.transcript.selected is not None and app.turns.index(app.transcript.selected) < 8


async def test_up_and_down_move_by_message_and_keep_it_in_view() -> None:
    app = TranscriptApp(turns(20))
    async with app.run_test(size=(90, 30)) as pilot:
        await focus(app, pilot)
        assert await move(app, pilot, -1) == app.turns[18].text
        assert app.transcript.is_vertical_scroll_end
        assert await move(app, pilot, -1, 10) == app.turns[8].text
        assert not app.transcript.is_vertical_scroll_end and app.transcript.scroll_y > 0
        view = app.transcript.view_of(app.turns[8])
        assert view is not None and app.transcript.region.contains_region(view.region)
        assert await move(app, pilot, 1, 3) == app.turns[11].text
        await app.transcript.select_last()
        assert not await app.transcript.move(1)
        assert app.transcript.selected is app.turns[-1]


async def test_up_at_the_first_mounted_message_loads_older_ones() -> None:
    app = TranscriptApp(turns(50))
    async with app.run_test(size=(90, 30)) as pilot:
        await filled(app, pilot)
        app.transcript.select(app.views[0].turn)
        await settled(app, pilot)
        first = app.turns.index(app.views[0].turn)
        assert await move(app, pilot, -1) == app.turns[first - 1].text
        assert len(app.views) >= WINDOW + BATCH
        await settled(app, pilot)
        view = app.transcript.view_of(app.turns[first - 1])
        assert view is not None and app.transcript.region.contains_region(view.region)


async def test_a_message_higher_than_the_window_is_read_in_parts() -> None:
    long = Turn(Role.ASSISTANT, "\n\n".join(f"paragraph {n}" for n in range(40)), 0.0)
    app = TranscriptApp([*turns(2), long, *turns(2)])
    async with app.run_test(size=(90, 30)) as pilot:
        await filled(app, pilot)
        await app.transcript.select_first()
        await settled(app, pilot)
        assert await move(app, pilot, 1, 2) == long.text
        seen: set[int] = set()
        while app.transcript.selected is long:
            seen |= paragraphs(app)
            await move(app, pilot, 1)
        assert seen == set(range(40))
        assert app.transcript.selected is app.turns[3]
        await move(app, pilot, -1)
        assert app.transcript.selected is long and 39 in paragraphs(app)
        place = app.transcript.scroll_y
        await move(app, pilot, -1)
        assert app.transcript.selected is long and app.transcript.scroll_y < place


def paragraphs(app: TranscriptApp) -> set[int]:
    """The numbers of the paragraphs that are drawn."""
    found = re.findall(r"paragraph&#160;(\d+)", app.export_screenshot())
    return {int(number) for number in found}


async def test_a_click_selects() -> None:
    app = TranscriptApp(turns(4))
    async with app.run_test(size=(90, 30)) as pilot:
        await filled(app, pilot)
        await pilot.click(app.views[1])
        await settled(app, pilot)
        assert marked(app) == [app.turns[1]]


async def test_a_switch_keeps_the_views_above_it() -> None:
    app = TranscriptApp(turns(12))
    async with app.run_test(size=(90, 30)) as pilot:
        await filled(app, pilot)
        above = app.views[:7]
        app.transcript.scroll_to(y=5, animate=False)
        await settled(app, pilot)
        app.turns[7:] = [Turn(Role.ASSISTANT, "the other one", 0.0)]
        await app.transcript.refresh_turns(follow=False)
        await settled(app, pilot)
        assert app.views[:7] == above and len(app.views) == 8
        assert app.transcript.scroll_y == 5
        app.turns[7:] = turns(60)  # so many that some above go
        await app.transcript.refresh_turns(follow=True)
        await settled(app, pilot)
        assert [v.turn for v in app.views] == app.turns[-WINDOW:]
        app.turns[:] = turns(3)
        await app.transcript.refresh_turns(follow=False)
        await settled(app, pilot)
        assert [v.turn for v in app.views] == app.turns


async def test_the_picker_of_code_blocks() -> None:
    blocks = code_blocks(CODE)
    assert [b.code for b in blocks] == ["print(1)", "ls\nls -l", ""]
    assert [block_text(n, b).plain.split() for n, b in enumerate(blocks, 1)] == [
        ["1", "python", "1", "line", "print(1)"],
        ["2", "sh", "2", "lines", "ls"],
        ["3", "text", "1", "line"],
    ]
    app = TranscriptApp(turns(2))
    picked: list[object] = []
    async with app.run_test(size=(90, 30)) as pilot:
        for keys in (["2"], ["j", "enter"], ["9", "k", "enter"], ["escape"]):
            await app.push_screen(CodePicker(blocks), picked.append)
            await pilot.press(*keys)
            await pilot.pause()
            assert not isinstance(app.screen, CodePicker)
    assert picked == [blocks[1], blocks[1], blocks[2], None]
