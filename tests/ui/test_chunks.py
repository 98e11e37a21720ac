from __future__ import annotations

from strata_tui.render.chunks import compile_chunks
from strata_tui.ui.widgets.chunks import PIECE_ROWS, Piece

from .transcript_app import TranscriptApp, body, live, settled


async def test_long_paragraphs_are_pieces_of_a_few_rows_while_they_are_written() -> None:
    turn = live()
    app = TranscriptApp([turn])
    async with app.run_test(size=(90, 30)) as pilot:
        await settled(app, pilot)
        paragraph = " ".join(["several words"] * 20)  # four rows
        turn.text = "\n\n".join([paragraph] * 9)
        app.views[0].sync()
        await settled(app, pilot)
        heights = [piece.size.height for piece in app.views[0].query(Piece)]
        assert len(heights) > 3 and max(heights) <= PIECE_ROWS + 5
        assert "\n".join(body(app.views[0])) == "\n".join(
            map(str, compile_chunks(turn.text, app.transcript.text_width))
        )
