from __future__ import annotations

from dataclasses import replace

from strata_tui.engine.engine import EngineOptions
from strata_tui.engine.events import Notice

from .conftest import Start


async def test_the_engine_is_listened_to_often_only_while_it_has_something_to_say(
    start: Start, slow_engine: EngineOptions
) -> None:
    async with start(engine=slow_engine) as run:
        await run.until(lambda: not run.screen.frames.running)
        await run.say("Tell me.")
        await run.until(lambda: run.screen.replies.busy)
        assert run.screen.frames.running
        await run.reply()
        await run.until(lambda: not run.screen.frames.running)
        run.screen._told.append(Notice("Said by itself."))
        await run.until(lambda: run.screen.flash.text == "Said by itself.")
        await run.say("And more.")
        await run.until(lambda: run.screen.frames.running)
        await run.reply()


async def test_new_numbers_lay_the_screen_out_only_where_there_are_more_lines_of_them(start: Start) -> None:
    async with start(size=(120, 24)) as run:
        panel, laid_out = run.screen.engine_panel, 0
        await run.until(lambda: not run.screen.frames.running and panel.size.height)

        def count(_: object) -> None:
            nonlocal laid_out
            laid_out += 1

        run.screen._sampled = float("inf")  # no numbers but those below
        await run.pilot.pause(0.2)
        run.screen.screen_layout_refresh_signal.subscribe(run.screen, count)
        panel.sample(replace(run.screen.snapshot, context_used=123))
        await run.pilot.pause()
        assert laid_out == 0 and "123 / 512" in run.shown()
        shown = panel.query_one("#engine-text")
        high = shown.size.height
        panel.focus()  # it can be scrolled then, and is whole
        await run.until(lambda: panel.has_focus)
        panel.draw()
        await run.until(lambda: shown.size.height > high)
        assert shown.size.height == str(shown.render()).count("\n") + 1
