from __future__ import annotations

from dataclasses import replace

import pytest

from strata_tui.config import Given
from strata_tui.engine.events import ModelInfo, Sampling
from strata_tui.engine.sampling import Resolved
from strata_tui.errors import UserError
from strata_tui.parameters import PARAMETERS, Layers, Scope, Source, Value, checked, named, shown, typed_value

MODEL = ModelInfo(
    path="/m/Big-Q4_K_M.gguf",
    name="Big",
    architecture="qwen3moe",
    quantization="Q4_K_M",
    file_bytes=1,
    trunk_bytes=1,
    expert_bytes=0,
    layers=1,
    experts_per_layer=0,
    experts_used=0,
    context_trained=1,
    context=1,
    key="0123456789abcdef",
    thinking=("on", "off"),
    recommended=(("temperature", 0.6), ("top_k", 20)),
)


def test_the_nearest_value_counts() -> None:
    given = Given()
    layers = Layers(given)

    def temperature(**chat: float) -> Value:
        return layers.value("temperature", MODEL, chat)

    assert layers.value("temperature", None, {}) == Value(0.7, Source.DEFAULT)
    assert temperature() == Value(0.6, Source.MODEL_FILE)
    given.file["temperature"] = 1.0
    assert temperature() == Value(1.0, Source.FILE)
    given.per_model["Big"] = {"temperature": 1.1}
    assert temperature() == Value(1.1, Source.MODEL)
    given.environment["temperature"] = 1.2
    assert temperature() == Value(1.2, Source.ENVIRONMENT)
    given.flags["temperature"] = 1.3
    assert temperature() == Value(1.3, Source.FLAG)
    assert temperature(temperature=0.0) == Value(0.0, Source.CHAT)
    given.flags["temperature"] = None  # the flag says auto
    assert temperature() == Value(0.6, Source.MODEL_FILE)


@pytest.mark.parametrize("section", ["Big", "BIG", "Big-Q4_K_M", "01234567"])
def test_a_models_section_is_found_by_name_file_or_key(section: str) -> None:
    layers = Layers(Given(per_model={"Bi": {}, "0123": {}, section: {"top_k": 3}}))
    assert layers.section(MODEL) == section
    assert layers.at(Scope.MODEL, "top_k", MODEL, {}) == 3
    assert layers.section(None) is None


def test_a_reply_gets_everything() -> None:
    sampling = Layers(Given(file={"thinking": "off", "seed": 7})).sampling(MODEL, {"min_p": 0.2})
    usual = Resolved()
    assert sampling == Sampling(
        temperature=0.6,
        top_k=20,
        top_p=usual.top_p,
        min_p=0.2,
        top_n_sigma=usual.top_n_sigma,
        typical_p=usual.typical_p,
        repeat_penalty=usual.repeat_penalty,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        penalty_window=usual.penalty_window,
        seed=7,
        thinking="off",
    )
    other = replace(MODEL, thinking=("low", "high"))
    assert Layers(Given(file={"thinking": "off"})).sampling(other, {}).thinking is None


def test_typed_values() -> None:
    assert typed_value("top_p", " 0.5 ") == 0.5
    assert typed_value("top_p", "auto") is typed_value("seed", "") is typed_value("seed", "-") is None
    assert typed_value("system", " keep\nthis ") == " keep\nthis "
    assert typed_value("thinking", "Off", MODEL) == "off"
    assert named("Top-P").name == "top_p"
    assert shown(0.5) == "0.5" and shown(None) == "auto" and shown("a\n b") == "a b"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("top_p", "2", "top-p is '2'; allowed: a number from 0 to 1, or auto"),
        ("seed", "x", "seed is 'x'; allowed: a whole number from 0 to"),
        ("thinking", "high", "Big's chat template does not know thinking high: it knows on, off"),
    ],
)
def test_values_that_are_not_allowed(name: str, text: str, reason: str) -> None:
    with pytest.raises(UserError) as caught:
        typed_value(name, text, MODEL)
    assert reason in str(caught.value)
    with pytest.raises(UserError, match="no option tempratur"):
        named("tempratur")


def test_stored_options_that_make_no_sense_are_left_out() -> None:
    assert checked({"top_p": 0.5, "top_k": "x", "seed": None, "system": "no", "new": 1}) == {"top_p": 0.5}


def test_every_parameter_says_what_it_does_and_its_range() -> None:
    for parameter in PARAMETERS:
        assert parameter.label and parameter.about.endswith(".") and parameter.allowed
