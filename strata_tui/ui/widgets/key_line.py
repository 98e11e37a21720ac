"""The last line: the keys that count now. One that does not fit is left out whole; help keeps the right end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.content import Content
from textual.events import Click, Resize
from textual.screen import Screen
from textual.style import Style
from textual.widgets import Static

from ..actions import ACTIONS, Where

_GAP = "  "
_LAST, _STOP = "help", "stop"
_PLACE = {action.id: n for n, action in enumerate(ACTIONS) if action.where is Where.CHAT}


class KeyLine(Static):
    """Follows the focus: first the keys of the area that has it. A click on one is a press of it.

    `stops` says what the key of `stop` does now; with no word, nothing, and the key is left out.
    """

    ALLOW_SELECT = False

    def __init__(self, stops: Callable[[], str], id: str | None = None) -> None:
        super().__init__(id=id)
        self._stops = stops
        self._stop_word = ""

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, screen: Screen[object]) -> None:
        if self.is_attached and screen is self.screen:
            self.call_after_refresh(self._draw)

    def check(self) -> None:
        """Draws anew where the key of `stop` does another thing now."""
        if self._stops() != self._stop_word:
            self._draw()

    def on_resize(self, event: Resize) -> None:
        self._draw()

    def on_click(self, event: Click) -> None:
        key = event.style.meta.get("key")
        if isinstance(key, str):
            self.app.simulate_key(key)

    def _draw(self) -> None:
        self._stop_word = self._stops()
        shown: dict[str, tuple[str, str, str]] = {}  # by action, for an action may have several keys
        for active in self.screen.active_bindings.values():
            binding = active.binding
            display = self.app.get_key_display(binding)
            name = binding.id or binding.action
            word = self._stop_word if name == _STOP else binding.description
            if binding.show and active.enabled and display and word:
                shown.setdefault(name, (binding.key, display, word))
        last = shown.pop(_LAST, None)
        first = sorted(shown, key=lambda id: _PLACE.get(id, -1))  # the table's order, after those of the area
        if _STOP in first:  # the way out is seen on narrow screens, too
            first.remove(_STOP)
            first.insert(min(1, sum(id not in _PLACE for id in first)), _STOP)
        self.update(key_text([shown[id] for id in first], last, self.size.width), layout=False)


def key_text(entries: Sequence[tuple[str, str, str]], last: tuple[str, str, str] | None, width: int) -> Content:
    """One line of `width` cells from (key, its name, what it does)."""
    end = _entry(*last) if last else Content()
    room = width - 2 - (end.cell_length + len(_GAP) if last else 0)
    parts: list[Content] = []
    for entry in entries:
        part = _entry(*entry)
        need = part.cell_length + (len(_GAP) if parts else 0)
        if need > room:
            break
        parts.append(part)
        room -= need
    left = Content(_GAP).join(parts)
    gap = max(1, width - 2 - left.cell_length - end.cell_length)
    return Content.assemble(" ", left, " " * gap, end, " ")


def _entry(key: str, name: str, does: str) -> Content:
    text = Content.assemble((name, "bold $footer-key-foreground"), (f" {does}", "$footer-description-foreground"))
    return text.stylize(Style.from_meta({"key": key}))
