from __future__ import annotations

from textual.geometry import Region

from strata_tui.ui.widgets.chunks import Piece

from .transcript_app import TranscriptApp, live, settled, turns


def places(app: TranscriptApp) -> list[Region]:
    return [widget.region for widget in app.query("#messages, MessageView, Piece")]


async def test_a_text_that_grows_is_laid_out_once() -> None:
    app = TranscriptApp([*turns(20), live()])
    async with app.run_test(size=(90, 30)) as pilot:
        await settled(app, pilot)
        turn, laid_out = app.turns[-1], 0

        def count(_: object) -> None:
            nonlocal laid_out
            laid_out += 1

        turn.text = "It grows"
        app.views[-1].sync()
        await settled(app, pilot)
        app.screen.screen_layout_refresh_signal.subscribe(app.screen, count)
        for lines in range(2, 6):
            high = app.views[-1].size.height
            laid_out = 0
            turn.text += " and grows" * 9
            app.transcript.before_growth()
            app.views[-1].sync()
            await settled(app, pilot)
            assert len(app.views[-1].query(Piece)) == 1 and app.views[-1].size.height == high + 1, lines
            assert laid_out == 1
            assert app.transcript.is_vertical_scroll_end
            before = places(app)
            app.screen.refresh(layout=True)
            await settled(app, pilot)
            assert places(app) == before


async def test_the_end_stays_in_view_where_the_height_becomes_less() -> None:
    app = TranscriptApp(turns(20))
    async with app.run_test(size=(90, 30)) as pilot:
        await settled(app, pilot)
        await pilot.resize_terminal(90, 20)
        await settled(app, pilot)
        assert app.transcript.is_vertical_scroll_end
        assert app.views[-1].region.bottom <= app.transcript.content_region.bottom
        assert app.views[-1].region.y >= 0
