"""The last line: the keys that count now. One that does not fit is left out whole; help keeps the right end."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from textual.content import Content
from textual.events import Click, Resize
from textual.screen import Screen
from textual.style import Style
from textual.widgets import Static

from ..actions import ACTIONS, Where

_GAP = "  "
_LAST, _STOP = "help", "stop"
_PLACE = {action.id: (action.where is Where.CHAT, n) for n, action in enumerate(ACTIONS)}
_FIRST = (False, -1)  # what is not of the table
_WITH = {"branch_previous": "branch_next"}  # whose keys are named together, under the word of the first


class KeyLine(Static):
    """Follows the focus: first the keys of the area that has it. A click on one is a press of it.

    `stops` says what the key of `stop` does now; with no word, nothing, and the key is left out. `idle`: ids of other
    actions that would do nothing now, whose keys are left out, too.
    """

    ALLOW_SELECT = False

    def __init__(self, stops: Callable[[], str], idle: Callable[[], Set[str]], id: str | None = None) -> None:
        super().__init__(id=id)
        self._stops, self._idle = stops, idle
        self._drawn: tuple[str, Set[str]] = ("", frozenset())

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, screen: Screen[object]) -> None:
        if self.is_attached and screen is self.screen:
            self.call_after_refresh(self._draw)

    def check(self) -> None:
        """Draws anew where a key does another thing now, or nothing more."""
        if self._now() != self._drawn:
            self._draw()

    def _now(self) -> tuple[str, Set[str]]:
        return self._stops(), self._idle()

    def on_resize(self, event: Resize) -> None:
        self._draw()

    def on_click(self, event: Click) -> None:
        key = event.style.meta.get("key")
        if isinstance(key, str):
            self.app.simulate_key(key)

    def _draw(self) -> None:
        self._drawn = stop_word, idle = self._now()
        shown: dict[str, tuple[str, str, str]] = {}  # by action, for an action may have several keys
        found: dict[str, tuple[str, str, str]] = {}  # the same, with those that are not shown alone
        for active in self.screen.active_bindings.values():
            binding = active.binding
            display = self.app.get_key_display(binding)
            name = binding.id or binding.action
            word = stop_word if name == _STOP else binding.description
            if active.enabled and display and word and name not in idle:
                found.setdefault(name, (binding.key, display, word))
                if binding.show:
                    shown.setdefault(name, found[name])
        for name, other in _WITH.items():
            if name in shown and other in found:
                (key, display, word), (key_2, display_2, _) = shown[name], found[other]
                shown[name] = f"{key},{key_2}", f"{display} {display_2}", word
        last = shown.pop(_LAST, None)
        first = sorted(shown, key=lambda id: _PLACE.get(id, _FIRST))  # the table's order, those of the area first
        if _STOP in first:  # the way out is seen on narrow screens, too
            first.remove(_STOP)
            first.insert(min(1, sum(not _PLACE.get(id, _FIRST)[0] for id in first)), _STOP)
        self.update(key_text([shown[id] for id in first], last, self.size.width), layout=False)


def key_text(entries: Sequence[tuple[str, str, str]], last: tuple[str, str, str] | None, width: int) -> Content:
    """One line of `width` cells from (key, its name, what it does); of two keys: `[,]` and `[ ]`."""
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
    keys = key.split(",")
    names = name.split(" ") if len(keys) > 1 else [name]
    named = [
        Content.styled(shown, "bold $footer-key-foreground").stylize(_presses(one))
        for one, shown in zip(keys, names, strict=True)
    ]
    said = Content.styled(f" {does}", "$footer-description-foreground").stylize(_presses(keys[-1]))
    return Content.assemble(Content(" ").join(named), said)


def _presses(key: str) -> Style:
    return Style.from_meta({"key": key})
