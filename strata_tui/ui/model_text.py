"""Models as the picker shows them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from textual.content import Content

from ..engine.gguf_info import GgufInfo
from ..engine.plan import Plan
from ..text import clean, clean_line
from . import format as f
from .help_text import FOLDERS
from .panel_text import plan_lines
from .shelf import Shelved

if TYPE_CHECKING:  # as shelf.py
    from ..catalog.places import Place

_SIZE, _QUANT, _EXPERTS, _FIT = 10, 8, 12, 23  # cells of the columns beside the name
_LEAST_NAME = 16


def model_line(one: Shelved, width: int, current: bool) -> Content:
    """One line: name, size, quantization, experts, and what fits; or that it cannot be used."""
    info = one.found.info
    mark = "● " if current else "  "
    name = clean_line(one.found.name)
    if info is None:
        reason = clean_line(one.problem).replace(str(one.found.path), "").strip()
        return Content(mark + f"{name}  {reason}").truncate(width, ellipsis=True)
    columns = [(f.size(info.file_bytes), _SIZE), (info.quantization, _QUANT)]
    room = width - 2 - _SIZE - _QUANT - 4
    for value, cells in ((fit_text(one.plan), _FIT), (experts_text(info), _EXPERTS)):
        if room - cells - 2 >= _LEAST_NAME:
            columns.append((value, cells))
            room -= cells + 2
    shown = Content(name).truncate(room, ellipsis=True)
    text = Content.assemble(mark, shown, " " * (room - shown.cell_length))
    for number, (value, cells) in enumerate(columns):
        value = value[:cells]
        value = value.rjust(cells) if number == 0 else value.ljust(cells)
        text = Content.assemble(text, "  ", value)
    return text


def experts_text(info: GgufInfo, noun: str = "exp") -> str:
    """`8 of 128 exp`, or `dense`."""
    return f"{info.n_experts_used} of {info.n_experts} {noun}" if info.n_experts else "dense"


def fit_text(plan: Plan | None) -> str:
    """How many experts get a slot, and the context: `52 % in slots, 8k ctx`."""
    if plan is None:
        return "does not fit"
    context = f"{plan.context // 1024}k ctx" if plan.context >= 1024 else f"{plan.context} ctx"
    return f"{f.percent(plan.slots / plan.n_experts, 0)} in slots, {context}" if plan.n_experts else context


def model_details(one: Shelved, width: int) -> Content:
    """Where it is, what it is, and the plan's estimate."""
    found, info = one.found, one.found.info
    lines = [Content(clean(str(found.path)))]
    if info is not None:
        trained = f"{f.count(info.context_trained)} tokens trained" if info.context_trained else "context unknown"
        shards = f", {len(info.shards)} files" if len(info.shards) > 1 else ""
        about = (info.architecture, f"{info.n_layers} layers", experts_text(info, "experts a layer"), trained)
        lines.append(Content(", ".join((found.kind.value, clean_line(info.name), *about)) + shards))
    if one.plan is not None:
        lines += plan_lines(one.plan.lines, width)
        lines += [Content.styled(notice, "$warning") for notice in one.plan.notices]
    elif one.problem:
        lines.append(Content.styled(clean(one.problem), "$warning"))
    return Content("\n").join(lines)


def folders_text(places: Iterable[Place], settings: Path) -> Content:
    """How the settings file adds a folder, and where models are looked for: what is there comes first."""
    lines = [Content(f"More folders, in the settings file {clean(str(settings))}:")]
    lines += [Content.styled(f"  {line}", "$accent") for line in FOLDERS]
    lines.append(Content("These are looked in:"))
    for there, place in sorted(((p.folder.is_dir(), p) for p in places), key=lambda found: not found[0]):
        about = f"  {place.kind.value}" + ("" if there else ", not there")
        lines.append(Content.assemble("  ", clean(str(place.folder)), (about, "$secondary")))
    return Content("\n").join(lines)
