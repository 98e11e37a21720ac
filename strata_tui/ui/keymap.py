"""The keys in force: the table's, changed by the [keys] section of the settings file. What cannot be is reported."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .actions import ACTIONS, BY_ID, Action, Where

UNBOUND = "unbound"  # no terminal sends it; stands in Textual's keymap for an action without a key
_SAME = {"ctrl+h": "backspace", "ctrl+i": "tab", "ctrl+m": "enter"}  # terminals send the same for both
_MODIFIERS = ("ctrl", "alt", "shift", "super", "hyper", "meta")
_NAMES = {"esc": "escape", "return": "enter", "pgup": "pageup", "pgdn": "pagedown", "del": "delete", "ins": "insert"}
_KEY = re.compile(r"[a-z0-9_]+|.")


@dataclass(frozen=True, slots=True)
class Keymap:
    """Keys of each action by its id. `problems`: one sentence for each setting that does not do what it says;
    `notes`: one for each key that means something else now.
    """

    keys: Mapping[str, tuple[str, ...]]
    chosen: Mapping[str, str]  # keys of the settings file -> the action's id, where the prompt must let them through
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def of(self, id: str) -> tuple[str, ...]:
        """An action's keys."""
        return self.keys[id]

    def textual(self) -> dict[str, str]:
        """What Textual's keymap has to say: actions whose keys differ from the table's."""
        return {
            action.id: ",".join(self.keys[action.id]) or UNBOUND
            for action in ACTIONS
            if self.keys[action.id] != action.keys
        }


def resolve_keys(given: Mapping[str, Sequence[str]]) -> Keymap:
    """The keys with what the settings file changes. A key that a person chose is taken from where it was."""
    return _Resolver(given).keymap()


class _Resolver:
    def __init__(self, given: Mapping[str, Sequence[str]]) -> None:
        self._problems: list[str] = []
        self._notes: list[str] = []
        self._keys = {action.id: action.keys for action in ACTIONS}
        self._wanted: dict[str, tuple[str, ...]] = {}
        for id, texts in given.items():
            action = BY_ID.get(id)
            if action is None:
                self._problems.append(f"keys.{id}: there is no action of this id; /help lists them.")
                continue
            good = [key for text in texts if (key := _checked(action, text, self._problems))]
            if good or not texts:
                self._wanted[id] = tuple(dict.fromkeys(good))
        for id in list(self._wanted):
            self._give(BY_ID[id])

    def keymap(self) -> Keymap:
        chosen = {
            key: id
            for id, some in self._wanted.items()
            if BY_ID[id].where in (Where.CHAT, Where.PROMPT) and id not in ("send", "new_line")
            for key in some
            if key in self._keys[id]
        }
        return Keymap(self._keys, chosen, tuple(self._problems), tuple(self._notes))

    def _give(self, action: Action) -> None:
        """Gives an action its wanted keys; of two that want the same key, the first has it."""
        order = list(self._wanted)
        mine: list[str] = []
        for key in self._wanted[action.id]:
            for rival in ACTIONS:
                if rival is action or not _meet(action, rival) or key not in self._keys[rival.id]:
                    continue
                if key not in self._wanted.get(rival.id, ()):
                    self._keys[rival.id] = tuple(k for k in self._keys[rival.id] if k != key)
                    if rival.id not in self._wanted:
                        self._notes.append(f"keys.{action.id}: {key} no longer means {rival.id} ({rival.label}).")
                elif order.index(rival.id) < order.index(action.id):
                    self._problems.append(f"keys.{action.id}: {key} is chosen for {rival.id} already; it stays there.")
                    break
            else:
                mine.append(key)
        self._keys[action.id] = tuple(mine)


def _meet(one: Action, other: Action) -> bool:
    """Whether a key of both would mean two things somewhere."""
    return one.where is other.where or one.where in other.where.around or other.where in one.where.around


def _checked(action: Action, text: str, problems: list[str]) -> str:
    """The key's name as Textual has it; empty with a problem where it can be no key of that action."""
    key = key_of(text)
    where = f"keys.{action.id}: {text}"
    if not key:
        problems.append(f"{where} is no key; /keys shows what a key is called.")
    elif key in _SAME:
        problems.append(f"{where} cannot be told from {_SAME[key]}.")
        return ""
    elif action.where in (Where.CHAT, Where.PROMPT) and (len(key) == 1 or key == "space" or key in _typed()):
        problems.append(f"{where} would be typed into the prompt: choose an F-key, or one with ctrl or alt.")
        return ""
    return key


def key_of(text: str) -> str:
    """A key's name from a person's spelling: `Ctrl-X`, `^x`, `Esc`, `?`. Empty for what is none."""
    text = text.strip()
    if len(text) == 1:
        from textual.keys import _character_to_key

        return _character_to_key(text)
    if text.startswith("^"):
        text = f"ctrl+{text[1:]}"
    *modifiers, key = re.split(r"[+-]", text) if not text.endswith(("+", "-")) else ("",)
    found = {modifier.lower() for modifier in modifiers}
    key = key.lower() if len(key) > 1 or modifiers else key
    key = _NAMES.get(key, key)
    if not key or not found <= set(_MODIFIERS) or not _KEY.fullmatch(key):
        return ""
    return "+".join([*(m for m in _MODIFIERS if m in found), key])


def _typed() -> set[str]:
    """Names of keys that are characters: `question_mark`."""
    from textual.keys import _character_to_key

    return {_character_to_key(chr(code)) for code in range(33, 127)}


DEFAULT = resolve_keys({})
