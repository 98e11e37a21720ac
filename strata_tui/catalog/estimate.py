"""What the memory plan would be for a model that is not open."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from math import lcm

from ..engine import native
from ..engine.gguf_header import BLOCK_SIZES
from ..engine.gguf_info import GgufInfo, expert_groups
from ..engine.options import EngineOptions
from ..engine.plan import Machine, Plan, make_plan
from ..engine.telemetry import physical_cores, ram

_PAD_VALUES, _ALIGNMENT = 512, 256  # what a slot has beside its blob, see engine_ext/experts.c


@dataclass(frozen=True, slots=True)
class _Class:
    """Experts of one shape."""

    experts: int
    least: int  # slots
    stride: int  # bytes of a slot, never less than the tier takes


class EstimatedSizes:
    """Slots of a model, from its header alone; a little more than the tier will say."""

    def __init__(self, info: GgufInfo) -> None:
        experts: dict[tuple[tuple[int, int, int], ...], int] = defaultdict(int)
        least: dict[tuple[tuple[int, int, int], ...], int] = defaultdict(int)
        for _, n, used, slices in expert_groups(info):
            shape = tuple((kind, row, rows) for _, _, _, kind, row, rows in slices)
            experts[shape] += n
            least[shape] = max(least[shape], used)
        self._classes = [_Class(n, least[shape], _stride(shape)) for shape, n in experts.items()]
        self.n_experts = sum(one.experts for one in self._classes)

    def min_slots(self) -> int:
        """Fewest slots with which every layer can run."""
        return sum(one.least for one in self._classes)

    def arena_bytes(self, slots: int) -> int:
        """Bytes of an arena with that many slots, shared out as the tier does."""
        total = given = 0
        for one in self._classes:
            n = min(one.experts, max(one.least, slots * one.experts // max(1, self.n_experts)))
            given += n
            total += n * one.stride
        widest = max((one.stride for one in self._classes), default=0)
        return total + max(0, min(slots, self.n_experts) - given) * widest


def machine(options: EngineOptions, held: int = 0) -> Machine:
    """This machine as the plan sees it. `held`: bytes that an open model will give back first. Raises UserError."""
    name = native.pick_device(options.gpu)
    device = next(d for d in native.devices() if d.name == name)
    on_gpu = device.cuda_index is not None
    memory = ram()
    if not on_gpu and memory.available is not None:
        memory = replace(memory, available=memory.available + held)
    return Machine(
        device=f"{device.description} ({name})" if on_gpu else name,
        on_gpu=on_gpu,
        vram_free=min(device.total, device.free + held) if on_gpu else 0,
        vram_total=device.total if on_gpu else 0,
        ram=memory,
        cores=physical_cores(),
    )


def estimate(info: GgufInfo, there: Machine, options: EngineOptions) -> Plan:
    """The plan as it would be. Raises UserError when the model does not fit."""
    return make_plan(info, EstimatedSizes(info), there, options)


def _stride(shape: tuple[tuple[int, int, int], ...]) -> int:
    """As the tier lays a slot out: slices in order, pads where types meet and at the end, whole units."""
    offset, unit, pad, before = 0, _ALIGNMENT, 0, -1
    for kind, row, rows in shape:
        values, size = BLOCK_SIZES[kind]
        if before not in (-1, kind):
            offset = _up(offset + pad, _ALIGNMENT)
        offset += row // values * size * rows
        unit, pad, before = lcm(unit, size), _PAD_VALUES // values * size, kind
    return _up(offset + pad, unit)


def _up(size: int, unit: int) -> int:
    return (size + unit - 1) // unit * unit
