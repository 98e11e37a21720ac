"""Actions around the terminal: keys, mouse, log, redrawing, suspending."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UserError
from ..term.mouse import set_mouse
from .actions import ACTIONS, Where
from .screens.keys import KeysScreen
from .screens.log import LogScreen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .screens.chat import ChatScreen


class TerminalCommands:
    """A part of Commands."""

    _screen: ChatScreen

    if TYPE_CHECKING:

        def keep(self, changes: Mapping[str, object]) -> None: ...
        def copy(self, text: str, what: str, tell: Callable[[str], None] | None = None) -> None: ...

    def do_keys(self, _: str) -> None:
        self._screen.app.push_screen(KeysScreen(self.meaning, self._screen.settings_file))

    def meaning(self, key: str) -> list[str]:
        """What a key does in the chat: of each area where it does something, a line."""
        keymap = self._screen.keymap
        found = [action for action in ACTIONS if key in keymap.of(action.id) and not action.where.over]
        return [a.label if a.where is Where.CHAT else f"{_area(a.where)}: {_lower(a.label)}" for a in found]

    def do_mouse(self, word: str) -> None:
        """Mouse reports on or off; without a word the other of the two."""
        screen = self._screen
        if word.lower() not in ("", "on", "off"):
            raise UserError(f"The mouse can be on or off; not {word}.")
        on = word.lower() == "on" if word else not screen.mouse
        if not set_mouse(screen.app._driver, on):
            raise UserError("Mouse reports cannot be turned on or off here.")
        screen.mouse = on
        screen.flash.say(
            "The mouse is on: hold shift (or option) to select with the terminal."
            if on
            else "The mouse is off: drag selects text as in any terminal."
        )
        self.keep({"mouse": on})

    def do_log(self, _: str) -> None:
        self._screen.app.push_screen(LogScreen(self._screen.log_path, self.copy))

    def do_redraw(self, _: str) -> None:
        self._screen.app.refresh(layout=True)

    def do_suspend(self, _: str) -> None:
        self._screen.app.action_suspend_process()


def _area(where: Where) -> str:
    """An area's heading without how one gets there."""
    return where.value.partition(" (")[0]


def _lower(label: str) -> str:
    return label[:1].lower() + label[1:]
