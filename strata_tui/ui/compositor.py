"""What is drawn anew of the screen when a part of it has changed."""

from __future__ import annotations

from collections.abc import Iterable

from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.strip import Strip


class RowsCompositor(Compositor):
    """Asks widgets only for those of their rows that changed, and only those that are seen there.

    Textual's own asks every widget around a change for all of its rows, and then drops nearly all of them: with each
    piece of a reply that is half of the work. What is drawn is the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self._changed: list[tuple[int, int, int, int]] = []  # left, top, right, bottom, while an update is rendered

    def render_partial_update(self) -> ChopsUpdate | None:
        self._changed = [region.corners for region in self._dirty_regions]
        try:
            return super().render_partial_update()
        finally:
            self._changed = []

    def _get_renders(self, crop: Region | None = None) -> Iterable[tuple[Region, Region, list[Strip]]]:
        if not self._changed:
            yield from super()._get_renders(crop)
            return
        wanted = self._changed
        for widget, (region, clip) in self.visible_widgets.items():  # from the front to the back
            shown = region.intersection(clip)
            left, top, right, bottom = shown.corners
            # Of the cells of a row the foremost widget's are drawn, so one with no changed cell is not needed at all.
            rows = [
                (max(top, first), min(bottom, last))
                for start, first, end, last in wanted
                if start < right and end > left and first < bottom and last > top
            ]
            if not rows:
                continue
            first, last = min(first for first, _ in rows), max(last for _, last in rows)
            band = Region(left, first, right - left, last - first)
            strips = widget.render_lines(band - region.offset)
            yield region, band, strips
            if len(strips) < band.height or any(strip.cell_length < band.width for strip in strips):
                continue  # it is on its way out, and draws nothing: what is behind it is seen
            # What it covers whole is done: nothing behind it is seen there.
            wanted = [
                (start, first, end, last)
                for start, first, end, last in wanted
                if start < left or end > right or first < top or last > bottom
            ]
            if not wanted:
                return
