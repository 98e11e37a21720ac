"""Work that a page began and that ends behind its closing: the widgets are gone, and nothing may ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata_tui.ui.screens.log import LogScreen
from strata_tui.ui.screens.models import ModelsScreen
from strata_tui.ui.screens.palette import Palette
from strata_tui.ui.screens.search import SearchScreen

if TYPE_CHECKING:
    from tests.ui.conftest import Start


async def test_what_comes_back_to_a_closed_page_is_dropped(start: Start) -> None:
    async with start(load=False) as run:
        for key, kind, work in (
            ("alt+m", ModelsScreen, lambda page: page._look()),
            ("ctrl+r", SearchScreen, lambda page: page._find("word")),
            ("f12", LogScreen, lambda page: page._read()),
            ("ctrl+p", Palette, lambda page: page._gather_commands("").wait()),
        ):
            await run.pilot.press(key)
            await run.until(lambda kind=kind: isinstance(run.app.screen, kind))
            page = run.app.screen
            await run.pilot.press("escape")
            await run.until(lambda page=page: page not in run.app.screen_stack and not page.is_running)
            if isinstance(page, ModelsScreen):
                page._stop.clear()  # as if it had not been told yet
            await work(page)
