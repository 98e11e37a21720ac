"""The engine's switches on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata_tui.config import read_file
from strata_tui.engine.modes import Residency, StagerProfile

if TYPE_CHECKING:
    from tests.ui.conftest import Start


async def test_switches_show_what_the_engine_says_and_are_kept(start: Start) -> None:
    async with start() as run:
        generation = run.screen.snapshot.modes and run.screen.snapshot.modes.pool_generation
        await run.pilot.press("f8", "f8")

        def applied() -> bool:
            modes = run.screen.snapshot.modes
            return modes is not None and modes.stager.wanted == "ssd" and not modes.stager.pending

        await run.until(applied)
        modes = run.screen.snapshot.modes
        assert modes is not None and modes.stager.actual == "ssd"
        assert generation is not None and modes.pool_generation > generation
        await run.until(lambda: "ssd" in run.shown())
        await run.say("/stager fast")
        assert "The stager can be auto, ram, ssd; not fast." in run.screen.flash.text
        await run.say("/stager ram")
        await run.until(lambda: run.options.settings_file.exists())
        await run.until(lambda: read_file(run.options.settings_file).stager is StagerProfile.RAM)
        await run.pilot.press("f7")
        await run.until(lambda: "not applicable" in run.shown())


async def test_residency_is_a_switch_too(start: Start) -> None:
    async with start() as run:
        before = run.screen.snapshot.modes
        assert before is not None and before.residency is not None and before.residency.actual == "lru"
        await run.pilot.press("f9")

        def applied(value: str) -> bool:
            state = run.screen.snapshot.modes and run.screen.snapshot.modes.residency
            return state is not None and (state.actual, state.pending) == (value, False)

        await run.until(lambda: applied("adaptive"))
        modes = run.screen.snapshot.modes
        assert modes is not None and modes.pool_generation == before.pool_generation  # the stage pool is left alone
        await run.until(lambda: "0 swaps" in run.shown())
        await run.say("/residency frozen")
        await run.until(lambda: applied("frozen"))
        await run.until(lambda: run.options.settings_file.exists())
        await run.until(lambda: read_file(run.options.settings_file).residency is Residency.FROZEN)
        await run.say("/residency cold")
        assert "Residency can be lru, adaptive, frozen; not cold." in run.screen.flash.text
