from __future__ import annotations

import re
from typing import ClassVar

import pytest
from textual._compositor import ChopsUpdate, Compositor
from textual.strip import Strip

from strata_tui.ui import compositor
from strata_tui.ui.screens import chat as chat_screen

from .conftest import Start

_EMPTY = re.compile(r"\x1b\[\d+;\d+H(?=\x1b\[\d+;\d+H|\n|$)")  # goes to a place and draws nothing there


class Compared(compositor.RowsCompositor):
    """Draws each change as Textual's own would, too."""

    drawn: ClassVar[list[bool]] = []

    def render_partial_update(self) -> ChopsUpdate | None:
        changed = self._dirty_regions.copy()
        update = super().render_partial_update()
        self._dirty_regions = changed
        other = Compositor.render_partial_update(self)
        if update is not None and other is not None:
            console = self.root.app.console if self.root is not None else None
            assert console is not None
            one, two = (_EMPTY.sub("", drawn.render_segments(console)) for drawn in (update, other))
            self.drawn.append(one == two)
        else:
            self.drawn.append(update is other)
        return update


async def test_what_is_drawn_of_changes_is_what_textual_draws(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_screen, "RowsCompositor", Compared)
    monkeypatch.setattr(Compared, "drawn", [])
    async with start() as run:
        await run.say("Tell me *much*.")
        await run.reply()
        await run.pilot.press("a", "b", "f4", "f2", "down", "escape", "/", "h", "tab")
        run.screen.flash.say("Something new.")
        await run.pilot.pause()
        await run.pilot.resize_terminal(70, 20)
        await run.say("And more.")
        await run.reply()
        await run.pilot.pause(0.2)
        assert len(Compared.drawn) > 20 and all(Compared.drawn)


async def test_of_widgets_only_rows_that_changed_are_asked_for(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    original = compositor.RowsCompositor._get_renders

    def counted(self: compositor.RowsCompositor, crop: object = None) -> object:
        for region, band, strips in original(self, crop):  # type: ignore[arg-type]
            if self._changed:
                rows.append(len(strips))
            yield region, band, strips

    async with start() as run:
        await run.pilot.pause(0.2)
        monkeypatch.setattr(compositor.RowsCompositor, "_get_renders", counted)
        run.screen.engine_panel.focus()
        await run.pilot.pause(0.2)
        rows.clear()
        run.screen.query_one("#status").refresh()
        await run.pilot.pause(0.2)
        assert rows and sum(rows) <= 8  # the line, and what it lies on


async def test_what_is_behind_a_widget_that_draws_nothing_is_drawn(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is being removed. An update of line ends alone would scroll the terminal."""
    monkeypatch.setattr(chat_screen, "RowsCompositor", Compared)
    async with start(load=False) as run:
        status = run.screen.query_one("#status")
        monkeypatch.setattr(status, "render_lines", lambda crop: [Strip([])] * crop.height)
        await run.pilot.pause(0.2)
        monkeypatch.setattr(Compared, "drawn", [])
        status.refresh()
        await run.pilot.pause(0.2)
        assert Compared.drawn and all(Compared.drawn)
