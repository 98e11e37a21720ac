"""llama.cpp's samplers, chained as one reply wants them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from .llama import Model, library
from .sampling import Resolved

_KEPT = 64  # likeliest tokens that a greedy choice looks at beside those that penalties may lower
_MOST_KEPT = 512  # more are not worth sorting out


class Sampler:
    """llama.cpp's filters for one reply, chained; the choice among what they leave is the speculator's."""

    def __init__(self, model: Model, sampling: Resolved) -> None:
        lib = library()
        self._lib = lib
        self._chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        self.greedy = sampling.temperature <= 0
        self.keep = _enough(sampling) if self.greedy else 0  # engine_ext/speculate_greedy.c
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


def _enough(sampling: Resolved) -> int:
    """Of how many of the likeliest tokens penalties leave the likeliest one; 0: of all. Penalties that only lower leave
    one of any that are more than the tokens they know."""
    lowers = sampling.repeat_penalty >= 1 and sampling.frequency_penalty >= 0 and sampling.presence_penalty >= 0
    keep = sampling.penalty_window + _KEPT
    return keep if lowers and _KEPT <= keep <= _MOST_KEPT else 0
