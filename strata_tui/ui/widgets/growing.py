"""Widgets that grow while a reply is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.geometry import Size
from textual.widget import Widget

if TYPE_CHECKING:
    _Mixin = Widget
else:
    _Mixin = object  # Textual takes a widget's styles from the first of its bases that is a widget


class Growing(_Mixin):
    """Has the screen laid out once when it has grown, where Textual does it twice.

    Textual lays out again whatever has another size for its content, in case scroll bars come or go. A widget that
    only becomes higher has no other layout then, and a scroll's bars ask for one themselves.
    """

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:
        before = (self._size.width, self.virtual_size.width, self._container_size.width)
        same = before == (size.width, virtual_size.width, container_size.width)
        if self.is_scrollable and self.styles.overflow_y != "hidden":  # where its end is depends on its own height, too
            same = same and (self._size, self._container_size) == (size, container_size)
        return super()._size_updated(size, virtual_size, container_size, layout and not same)
