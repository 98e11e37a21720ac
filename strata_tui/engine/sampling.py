"""Which sampling parameters count: chosen ones, a model's own, the usual ones. Needs no llama.cpp."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from .events import Sampling


@dataclass(frozen=True, slots=True)
class Resolved:
    """Sampling parameters with nothing left open."""

    temperature: float = 0.7
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    top_n_sigma: float = 0.0  # 0: off
    typical_p: float = 1.0  # 1: off
    repeat_penalty: float = 1.0  # 1: off
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 64  # last tokens that the penalties look at


_MODEL_KEYS = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repeat_penalty": "general.sampling.penalty_repeat",
    "penalty_window": "general.sampling.penalty_last_n",
}
_WHOLE = ("top_k", "penalty_window")


def recommended(metadata: Mapping[str, object]) -> dict[str, float]:
    """The sampling parameters that a model's file recommends, as far as they can be used."""
    values: dict[str, float] = {}
    for name, key in _MODEL_KEYS.items():
        own = metadata.get(key)
        if isinstance(own, (int, float)) and math.isfinite(own) and own >= 0:
            values[name] = int(own) if name in _WHOLE else float(own)
    return values


def resolve(sampling: Sampling, metadata: Mapping[str, object]) -> Resolved:
    """A chosen value counts first, then what the model's metadata recommends, then the usual one."""
    values = recommended(metadata)
    for f in fields(Resolved):
        chosen = getattr(sampling, f.name)
        if chosen is not None:
            values[f.name] = chosen
    return Resolved(**values)  # type: ignore[arg-type]
