"""Which sampling parameters a reply gets: chosen, else the model's, else the usual ones."""

from __future__ import annotations

from strata_tui.engine.events import Sampling
from strata_tui.engine.sampler import Resolved, resolve

OWN = {"general.sampling.temp": 0.25, "general.sampling.top_k": 20, "general.sampling.top_p": float("nan")}


def test_a_chosen_value_beats_the_models_and_that_the_usual_one() -> None:
    assert resolve(Sampling(), {}) == Resolved()
    assert resolve(Sampling(), OWN) == Resolved(temperature=0.25, top_k=20)
    assert resolve(Sampling(temperature=0, top_k=0, min_p=0.0), OWN) == Resolved(temperature=0, top_k=0, min_p=0.0)


def test_what_no_sampler_takes_is_not_taken_from_the_model() -> None:
    assert resolve(Sampling(), {"general.sampling.temp": -1.0, "general.sampling.min_p": "x"}) == Resolved()
