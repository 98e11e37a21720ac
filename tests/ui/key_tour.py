"""How keys are pressed in a terminal, and what is looked for after each."""

from __future__ import annotations

from collections.abc import Callable

from ui.tmux_terminal import SEQUENCES, Tmux

from strata_tui.ui.actions import BY_ID

Check = Callable[[str, str], object]
Do = Callable[[], object]


def lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n")


def key_line(text: str) -> str:
    return lines(text)[-1]


def body(text: str) -> list[str]:
    """The transcript, without the panel beside it."""
    return [line[:76] for line in lines(text)[1:34]]


def appears(mark: str) -> Check:
    return lambda was, now: mark not in was and mark in now


def vanishes(mark: str) -> Check:
    return lambda was, now: mark in was and mark not in now


def keys_become(mark: str) -> Check:
    return lambda was, now: mark not in key_line(was) and mark in key_line(now)


def moves(was: str, now: str) -> bool:
    return body(was) != body(now)


def changes(was: str, now: str) -> bool:
    return was != now


class Tour:
    """Presses keys of the table, and keeps which."""

    def __init__(self, terminal: Tmux) -> None:
        self.terminal = terminal
        self.pressed: set[tuple[str, str]] = set()

    def every(self, id: str, check: Check, before: Do = lambda: None, after: Do = lambda: None) -> None:
        """Each key of an action: what must be seen happens after it, from what was seen before it."""
        for key in BY_ID[id].keys:
            if not (self.terminal.nested and key in SEQUENCES):
                before()
                was = self.terminal.steady()
                self.terminal.press(key)
                self.terminal.until(lambda now, was=was: check(was, now))
                after()
            self.pressed.add((id, key))

    def marks(self, id: str) -> None:
        """Each key of an action that moves a list's cursor, whose row is in bold."""
        for key in BY_ID[id].keys:
            was = self.terminal.bold()
            self.terminal.press(key)
            self.terminal.until(lambda _, was=was: self.terminal.bold() != was)
            self.pressed.add((id, key))

    def go(self, *keys: str, to: str) -> None:
        """Presses keys and waits for a mark."""
        self.terminal.press(*keys)
        self.terminal.until(lambda text: to in text)

    def messages(self, key: str, to: str) -> None:
        """To the messages, and there to one."""
        if "y copy" not in key_line(self.terminal.shown()):
            self.terminal.press("alt+up")
        self.terminal.until(lambda text: "y copy" in key_line(text))  # else the key would still be the prompt's
        self.go(key, to=to)

    def leave(self, mark: str, *keys: str) -> Do:
        """How what a key has brought up is left again."""

        def leave() -> None:
            self.terminal.press(*(keys or ("escape",)))
            self.terminal.until(lambda text: mark not in text and "enter send" in key_line(text))

        return leave

    def away(self, mark: str) -> Do:
        """How a page over something else than the prompt is left."""

        def away() -> None:
            self.terminal.press("escape")
            self.terminal.until(lambda text: mark not in text)

        return away

    def calm(self) -> None:
        """Back to the prompt."""
        if "enter send" not in key_line(self.terminal.shown()):
            self.terminal.press("escape")
        self.terminal.until(lambda text: "enter send" in key_line(text) and "ready" in text)

    def say(self, text: str, to: str) -> None:
        """Types a line and sends it."""
        self.terminal.type(text)
        self.terminal.until(lambda shown: text in shown)
        self.go("enter", to=to)
