"""The engine's log, a page."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from textual.containers import VerticalScroll

from strata_tui.ui.screens.log import LogScreen

if TYPE_CHECKING:
    from tests.ui.conftest import Start


async def test_a_page_up_is_one_step(start: Start, tmp_path: Path) -> None:
    """A scroll that is still on its way ends where it was going, although a later key went elsewhere."""
    path = tmp_path / "engine.log"
    path.write_text("".join(f"2026-11-30 12:00:00,{n:03} INFO    line {n}\n" for n in range(300)))
    async with start(load=False) as run:
        screen = LogScreen(path, lambda *_: None)
        await run.app.push_screen(screen)
        page = screen.query_one("#log-page", VerticalScroll)
        await run.until(lambda: page.max_scroll_y > 100 and page.scroll_y == page.max_scroll_y)
        seen = set()
        page.action_page_up()
        for _ in range(30):
            await asyncio.sleep(0.01)
            seen.add(page.scroll_y)
        assert seen <= {page.max_scroll_y, page.scroll_y}, "it went there in one step"
        assert page.scroll_y < page.max_scroll_y
