"""llama.cpp's samplers, chained as one reply wants them."""

from __future__ import annotations

from collections.abc import Sequence

from .events import Sampling
from .llama import Context, Model, library

PENALTY_WINDOW = 64  # last tokens the repeat penalty looks at


class Sampler:
    """llama.cpp's sampler chain for one reply. `seed` must be a 32 bit number."""

    def __init__(self, model: Model, sampling: Sampling, seed: int) -> None:
        lib = library()
        self._lib = lib
        self._chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        links = []
        if sampling.repeat_penalty != 1.0:
            links.append(
                lib.llama_sampler_init_penalties(model.n_vocab, PENALTY_WINDOW, sampling.repeat_penalty, 0.0, 0.0)
            )
        if sampling.temperature <= 0:
            links.append(lib.llama_sampler_init_greedy())
        else:
            if sampling.top_k > 0:
                links.append(lib.llama_sampler_init_top_k(sampling.top_k))
            if sampling.top_p < 1:
                links.append(lib.llama_sampler_init_top_p(sampling.top_p, 1))
            if sampling.min_p > 0:
                links.append(lib.llama_sampler_init_min_p(sampling.min_p, 1))
            links.append(lib.llama_sampler_init_temp(sampling.temperature))
            links.append(lib.llama_sampler_init_dist(seed))
        for link in links:
            lib.llama_sampler_chain_add(self._chain, link)

    def accept(self, tokens: Sequence[int]) -> None:
        """Lets the penalties see tokens that were not sampled here."""
        for token in tokens[-PENALTY_WINDOW:]:
            self._lib.llama_sampler_accept(self._chain, token)

    def sample(self, context: Context) -> int:
        """A token from the last decode's last logits; it is accepted into the chain."""
        return int(self._lib.llama_sampler_sample(self._chain, context.ptr, -1))

    def close(self) -> None:
        if self._chain:
            self._lib.llama_sampler_free(self._chain)
            self._chain = None
