"""llama.cpp's samplers, chained as one reply wants them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from .events import Sampling
from .llama import Model, library


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


class Sampler:
    """llama.cpp's filters for one reply, chained; the choice among what they leave is the speculator's."""

    def __init__(self, model: Model, sampling: Resolved) -> None:
        lib = library()
        self._lib = lib
        self._chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        self.greedy = sampling.temperature <= 0
        links = []
        self._window = sampling.penalty_window
        penalties = (sampling.repeat_penalty, sampling.frequency_penalty, sampling.presence_penalty)
        if self._window and penalties != (1.0, 0.0, 0.0):
            links.append(lib.llama_sampler_init_penalties(model.n_vocab, self._window, *penalties))
        if not self.greedy:
            if sampling.top_n_sigma > 0:
                links.append(lib.llama_sampler_init_top_n_sigma(sampling.top_n_sigma))
            if sampling.top_k > 0:
                links.append(lib.llama_sampler_init_top_k(sampling.top_k))
            if sampling.typical_p < 1:
                links.append(lib.llama_sampler_init_typical(sampling.typical_p, 1))
            if sampling.top_p < 1:
                links.append(lib.llama_sampler_init_top_p(sampling.top_p, 1))
            if sampling.min_p > 0:
                links.append(lib.llama_sampler_init_min_p(sampling.min_p, 1))
            links.append(lib.llama_sampler_init_temp(sampling.temperature))
        for link in links:
            lib.llama_sampler_chain_add(self._chain, link)

    @property
    def address(self) -> int:
        """Of the chain, for _core.Speculator.begin."""
        return ctypes.cast(self._chain, ctypes.c_void_p).value or 0

    def accept(self, tokens: Sequence[int]) -> None:
        """Lets the penalties see tokens that were not sampled here."""
        for token in tokens[-self._window :] if self._window else ():
            self._lib.llama_sampler_accept(self._chain, token)

    def close(self) -> None:
        if self._chain:
            self._lib.llama_sampler_free(self._chain)
            self._chain = None
