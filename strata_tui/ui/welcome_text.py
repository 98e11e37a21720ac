"""What an empty chat shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from textual.content import Content

from ..engine.events import ModelInfo, PlanLine
from . import format as f
from .actions import key_name
from .keymap import DEFAULT, Keymap
from .panel_parts import flow
from .panel_text import plan_lines

_WIDTH = 76  # at most, in cells


def welcome_text(
    model: ModelInfo | None,
    loading: bool,
    plan: Sequence[PlanLine],
    store: Path,
    width: int,
    keymap: Keymap = DEFAULT,
) -> Content:
    """The model, or why there is none; the first keys; the memory plan; where chats are kept."""
    lines: list[Content] = []
    if model is not None:
        lines.append(Content.assemble((model.name, "bold $primary"), (f"  {model.quantization}", "$secondary")))
        experts = (
            f"{model.experts_used} of {model.experts_per_layer} experts used" if model.experts_per_layer else "dense"
        )
        lines.append(
            Content(f"{model.architecture}, {model.layers} layers, {experts}, file {f.size(model.file_bytes)}")
        )
    elif loading:
        lines.append(Content("The model is loading; you can write already."))
    else:
        key = next((key_name(key) for key in keymap.of("chats")), "/chats")
        lines.append(Content(f"No model is loaded. /open PATH loads one; the chats can be read ({key})."))
    lines += [Content(), *_keys(keymap, min(_WIDTH, width))]
    if model is not None and plan:
        lines += [Content(), Content.styled("Memory plan", "bold $primary"), *plan_lines(plan, min(_WIDTH, width))]
    lines += [Content(), Content.styled(f"Chats are kept in {store}", "$muted")]
    return Content("\n").join(lines)


def _keys(keymap: Keymap, width: int) -> list[Content]:
    """The first keys, as many in a line as there is room for."""
    named = (("help", "keys and commands"), ("chats", "chats"), ("model", "models"), ("options", "options"))
    keys = [(key_name(of[0]), does) for id, does in named if (of := keymap.of(id))]
    keys += [("/", "commands"), ("@", "attach a file")]
    return flow((Content.assemble((key, "bold $accent"), f" {does}") for key, does in keys), "   ", width)
