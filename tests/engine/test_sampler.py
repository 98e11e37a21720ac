"""Which sampling parameters a reply gets: chosen, else the model's, else the usual ones."""

from __future__ import annotations

import contextlib
from dataclasses import fields, replace

from model_fixtures import TinyModel

from strata_tui.engine.events import Sampling
from strata_tui.engine.llama import FLASH_AUTO, OK, Context, ContextOptions, Model, library
from strata_tui.engine.sampler import Sampler
from strata_tui.engine.sampling import Resolved, resolve

OWN = {"general.sampling.temp": 0.25, "general.sampling.top_k": 20, "general.sampling.top_p": float("nan")}


def test_a_chosen_value_beats_the_models_and_that_the_usual_one() -> None:
    assert resolve(Sampling(), {}) == Resolved()
    assert resolve(Sampling(), OWN) == Resolved(temperature=0.25, top_k=20)
    assert resolve(Sampling(temperature=0, top_k=0, min_p=0.0), OWN) == Resolved(temperature=0, top_k=0, min_p=0.0)


def test_what_no_sampler_takes_is_not_taken_from_the_model() -> None:
    assert resolve(Sampling(), {"general.sampling.temp": -1.0, "general.sampling.min_p": "x"}) == Resolved()


def test_every_parameter_of_a_sampler_can_be_chosen() -> None:
    for f in fields(Resolved):
        assert getattr(resolve(Sampling(**{f.name: 3}), OWN), f.name) == 3


def chosen(model: Model, context: Context, resolved: Resolved, seen: list[int]) -> set[int]:
    """What llama.cpp chooses behind the filters, with 24 seeds, after the context's last token."""
    lib, picks = library(), set()
    for seed in range(24):
        sampler = Sampler(model, resolved)
        last = lib.llama_sampler_init_greedy() if sampler.greedy else lib.llama_sampler_init_dist(seed)
        lib.llama_sampler_chain_add(sampler._chain, last)
        sampler.accept(seen)
        picks.add(int(lib.llama_sampler_sample(sampler._chain, context.ptr, -1)))
        sampler.close()
    return picks


def test_the_filters_and_penalties_reach_llama_cpp(tiny_model: TinyModel) -> None:
    with contextlib.closing(Model.load(tiny_model("qwen3moe"))) as model:
        options = ContextOptions(256, 64, 1, FLASH_AUTO, outputs=1)
        with contextlib.closing(Context(model, options)) as context:
            assert context.decode(model.tokenize("the people of water"), 0) == OK
            best = int(context.logits().argmax())
            free = Resolved(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0)
            assert len(chosen(model, context, free, [])) > 5
            assert chosen(model, context, replace(free, top_n_sigma=0.01), []) == {best}
            assert chosen(model, context, replace(free, typical_p=0.001), []) < chosen(model, context, free, [])
            greedy = replace(free, temperature=0)
            assert chosen(model, context, greedy, [best]) == {best}
            assert chosen(model, context, replace(greedy, presence_penalty=100), [best]) != {best}
            assert chosen(model, context, replace(greedy, frequency_penalty=100), [best]) != {best}
            assert chosen(model, context, replace(greedy, presence_penalty=100, penalty_window=0), [best]) == {best}
            assert chosen(model, context, replace(greedy, presence_penalty=100, penalty_window=1), [best, 9]) == {best}
