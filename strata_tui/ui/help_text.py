"""The help page, made from the table of actions."""

from __future__ import annotations

from textwrap import wrap

from textual.content import Content

from .actions import ACTIONS, Where, key_name
from .keymap import DEFAULT, Keymap

_WIDTH = 78


def help_text(keymap: Keymap = DEFAULT) -> Content:
    """Keys, slash command and meaning of every action, by area; what is wrong with the settings' keys first."""
    lines: list[Content] = []
    if keymap.problems or keymap.notes:
        lines.append(Content.styled("Keys of the settings file", "bold $warning"))
        lines += map(Content, (*keymap.problems, *keymap.notes))
    for where in Where:
        if lines:
            lines.append(Content())
        lines.append(Content.styled(where.value, "bold $primary"))
        keys_width, usage_width = (14, 24) if where is Where.CHAT else (26, 0)
        for action in ACTIONS:
            if action.where is where:
                keys = " ".join(key_name(key) for key in keymap.of(action.id))
                usage = action.usage if usage_width else ""
                keys_cell, usage_cell = keys.ljust(keys_width), usage.ljust(usage_width)
                words = wrap(action.label, _WIDTH - keys_width - usage_width)
                if len(keys) >= keys_width or (usage_width and len(usage) >= usage_width):
                    words.insert(0, "")  # no room beside them
                first, *rest = words
                lines.append(Content.assemble((keys_cell, "$accent"), (usage_cell, "$secondary"), first))
                lines.extend(Content(" " * (keys_width + usage_width) + more) for more in rest)
    lines += [
        Content(),
        Content.styled("Good to know", "bold $primary"),
        Content("A line that starts with two slashes is sent as a message with one."),
        Content("Hold shift (or option) while dragging to select text with the terminal itself."),
        Content("shift+enter and alt+enter work only where the terminal reports them; ctrl+j always does."),
        Content("ctrl+z takes back what was typed; /suspend goes back to the shell."),
        Content(),
        Content.styled("Ids, for keys of your own: [keys] in the settings file", "bold $primary"),
    ]
    for where in Where:
        ids = ", ".join(action.id for action in ACTIONS if action.where is where)
        lines += map(Content, wrap(f"{where.value}: {ids}", _WIDTH, subsequent_indent="  "))
    return Content("\n").join(lines)
