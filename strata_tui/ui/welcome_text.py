"""What an empty chat shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from textual.content import Content

from ..engine.events import ModelInfo, PlanLine
from . import format as f
from .panel_text import plan_lines

_WIDTH = 76  # at most, in cells


def welcome_text(model: ModelInfo | None, loading: bool, plan: Sequence[PlanLine], store: Path, width: int) -> Content:
    """The model and its memory plan, or why there is none; where chats are kept; the first keys."""
    lines: list[Content] = []
    if model is not None:
        lines.append(Content.styled(f"{model.name}  {model.quantization}", "bold $primary"))
        experts = (
            f"{model.experts_used} of {model.experts_per_layer} experts used" if model.experts_per_layer else "dense"
        )
        lines.append(
            Content(f"{model.architecture}, {model.layers} layers, {experts}, file {f.size(model.file_bytes)}")
        )
        if plan:
            lines += [Content(), Content.styled("Memory plan", "bold"), *plan_lines(plan, min(_WIDTH, width))]
    elif loading:
        lines.append(Content("The model is loading; you can write already."))
    else:
        lines.append(Content("No model is loaded. /open PATH loads one; the chats can be read (f2)."))
    lines += [
        Content(),
        Content.styled(f"Chats are kept in {store}", "$muted"),
        Content.styled("f1 shows keys and commands; / lists the commands.", "$muted"),
    ]
    return Content("\n").join(lines)
