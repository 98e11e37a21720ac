"""The help page, made from the table of actions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from textwrap import wrap

from textual.content import Content

from .actions import ACTIONS, Action, Where, key_name
from .keymap import DEFAULT, Keymap

_WIDTH = 78
_KEYS, _USAGE, _AREA_KEYS = 11, 24, 16  # cells of the columns; an area of its own has no commands
_NARROW, _ROOMY = 72, 90  # below the one a command stands under what it does; from the other on each has its column
_LONGEST = max(len(action.usage) for action in ACTIONS) + 2
EXAMPLE = "[keys]", 'export = "f5"'  # lines of a settings file
FOLDERS = "[models]", 'folders = ["~/models"]'
_NOTES = (
    "A line that starts with two slashes is sent as a message with one.",
    "Hold shift (or option) while dragging to select text with the terminal itself.",
    "shift+enter and alt+enter work only where the terminal reports them; ctrl+j always does.",
    "ctrl+z takes back what was typed; /suspend goes back to the shell.",
)


def help_text(keymap: Keymap = DEFAULT, width: int = _WIDTH, *, settings: Path) -> Content:
    """Keys, slash command and meaning of every action, by area; what is wrong with the settings' keys first.

    `settings`: the settings file, which need not exist.
    """
    lines: list[Content] = []
    if keymap.problems or keymap.notes:
        lines.append(Content.styled("Keys of the settings file", "bold $warning"))
        lines += _wrapped((*keymap.problems, *keymap.notes), width)
    for where in Where:
        if lines:
            lines.append(Content())
        lines.append(Content.styled(where.value, "bold $primary"))
        for action in ACTIONS:
            if action.where is where:
                lines += _action(action, " ".join(key_name(key) for key in keymap.of(action.id)), width)
    lines += [Content(), Content.styled("Good to know", "bold $primary"), *_wrapped(_NOTES, width)]
    lines += [Content(), Content.styled("The settings file", "bold $primary")]
    lines += _wrapped([str(settings), "Keys of your own in it, such as:"], width)
    lines += [Content.styled(f"  {line}", "$accent") for line in EXAMPLE]
    lines += [Content("More folders of models:"), *(Content.styled(f"  {line}", "$accent") for line in FOLDERS)]
    lines += _wrapped([f"Themes of your own: {settings.parent / 'themes'}"], width)
    lines += [Content(), Content.styled("Ids, for keys of your own", "bold $primary")]
    for where in Where:
        ids = ", ".join(action.id for action in ACTIONS if action.where is where)
        lines += _wrapped([f"{where.value}: {ids}"], width)
    return Content("\n").join(lines)


def _action(action: Action, keys: str, width: int) -> list[Content]:
    """An action's lines: its keys, its command, and what it does."""
    everywhere = action.where is Where.CHAT
    keys_width = _KEYS if everywhere else _AREA_KEYS
    beside = everywhere and width >= _NARROW
    usage = action.usage if everywhere else ""
    usage_width = _LONGEST if width >= _ROOMY else _USAGE
    left = keys_width + (usage_width if beside else 0)
    words = wrap(action.label, max(20, width - left))
    if not beside and usage:
        together = f"{action.label}  {usage}"
        words = [*words, usage] if len(together) > width - left else [together]
    if len(keys) >= keys_width or (beside and len(usage) >= usage_width):
        words.insert(0, "")  # no room beside them
    head = keys.ljust(keys_width)
    if beside:
        first = Content.assemble((head, "$accent"), (usage.ljust(usage_width), "$secondary"), words[0])
        return [first, *(Content(" " * left + more) for more in words[1:])]
    lines = [head, *(" " * left for _ in words[1:])]
    return [Content.assemble((lead, "$accent"), *_told(word, usage)) for lead, word in zip(lines, words, strict=True)]


def _told(text: str, usage: str) -> list[str | tuple[str, str]]:
    """What an action does, with its command in a quieter ink."""
    if usage and text.endswith(usage):
        return [text.removesuffix(usage), (usage, "$secondary")]
    return [text]


def _wrapped(texts: Iterable[str], width: int) -> list[Content]:
    return [Content(line) for text in texts for line in wrap(text, max(20, width), subsequent_indent="  ")]
