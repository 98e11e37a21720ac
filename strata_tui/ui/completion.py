"""What the menu above the prompt offers for what is being typed: commands, their arguments, files after an @."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from .actions import BY_SLASH, Action, completions, key_name

_FILE_TOKEN = re.compile(r"(?:^|(?<=[\s(\[{\"']))@(\S*)$")
_COMMAND = re.compile(r"/([A-Za-z]+) +")


class Kind(Enum):
    """What is being completed."""

    COMMAND = "command"
    ARGUMENT = "argument"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Choice:
    """One line of the menu: `text` takes the token's place; `note` explains it. `more`: an argument may follow, of
    which `hint` says what it is.
    """

    text: str
    note: str = ""
    more: bool = False
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Token:
    """The part of the cursor's line that is being completed: from column `start` to the cursor."""

    kind: Kind
    start: int
    text: str  # of a file: without the @
    action: Action | None = None  # whose argument it is


Source = Callable[[str], Sequence[Choice]]  # an argument's beginning -> what it may become; may wait for the disk


def token_at(text: str, row: int, column: int) -> Token | None:
    """What is being completed with the cursor there, or None."""
    lines = text.split("\n")
    before = lines[row][:column]
    if len(lines) == 1 and before.startswith("/"):
        if completions(before):
            return Token(Kind.COMMAND, 0, before)
        command = _COMMAND.match(before)
        action = BY_SLASH.get(command[1].lower()) if command else None
        if command and action is not None and action.argument:
            return Token(Kind.ARGUMENT, command.end(), before[command.end() :], action)
    file = _FILE_TOKEN.search(before)
    return Token(Kind.FILE, file.start(), file[1]) if file else None


def command_choices(typed: str, keys_of: Callable[[str], Sequence[str]]) -> list[Choice]:
    """The commands that start as `typed` does; `keys_of` gives an action's keys by its id."""
    found = []
    for action in completions(typed):
        keys = " ".join(key_name(key) for key in keys_of(action.id)[:1])
        note = f"{action.label}  ({keys})" if keys else action.label
        found.append(Choice(f"/{action.slash}", note, bool(action.argument), action.argument))
    return found


def fixed_choices(action: Action, typed: str) -> list[Choice]:
    """The values that an action's argument names, such as `auto|on|off`."""
    values = action.argument.split("|") if "|" in action.argument and " " not in action.argument else []
    return [Choice(value) for value in values if value.startswith(typed.lower())]


def path_choices(typed: str, suffixes: Sequence[str] = ()) -> list[Choice]:
    """Folders and files whose path starts as `typed` does; with `suffixes` only files that end so."""
    shown, _, name = typed.rpartition("/")
    shown = f"{shown}/" if "/" in typed else ""
    folder = Path(os.path.expanduser(shown or "."))
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith(name) or (entry.name.startswith(".") and not name.startswith(".")):
                    continue
                if entry.is_dir():
                    found.append(Choice(f"{shown}{entry.name}/", more=True))
                elif not suffixes or entry.name.endswith(tuple(suffixes)):
                    found.append(Choice(shown + entry.name))
    except OSError:
        return []
    return sorted(found, key=lambda choice: choice.text)
