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
                first, *rest = wrap(action.label, _WIDTH - keys_width - usage_width)
                lines.append(
                    Content.assemble(
                        (keys.ljust(keys_width), "$accent"), (usage.ljust(usage_width), "$secondary"), first
                    )
                )
                lines.extend(Content(" " * (keys_width + usage_width) + more) for more in rest)
    lines += [
        Content(),
        Content.styled("Good to know", "bold $primary"),
        Content("A line that starts with two slashes is sent as a message with one."),
        Content("Hold shift (or option) while dragging to select text with the terminal itself."),
        Content("shift+enter and alt+enter work only where the terminal reports them; ctrl+j always does."),
    ]
    return Content("\n").join(lines)
