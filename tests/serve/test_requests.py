from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata_tui.engine.events import Message, ModelInfo
from strata_tui.serve.requests import BadRequest, request_of
from strata_tui.serve.stops import Stops

MODEL = ModelInfo("/m.gguf", "m", "llama", "Q4_0", 1, 1, 0, 1, 0, 0, 512, 512, thinking=("low", "high"))
HI = [{"role": "user", "content": "hi"}]


def body(**fields: Any) -> bytes:
    return json.dumps({"messages": HI} | fields).encode()


def test_all_that_can_be_asked_for() -> None:
    found = request_of(
        body(
            model="any",
            messages=[
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                {"role": "assistant", "content": "begun"},
            ],
            temperature=0,
            top_k=5,
            max_completion_tokens=7,
            seed=3,
            stop="END",
            stream=True,
            stream_options={"include_usage": True},
            reasoning_effort="low",
            n=1,
            tools=[],
            user="somebody",
        ),
        MODEL,
    )
    assert found.messages == (Message("system", "Be brief."), Message("user", "ab"), Message("assistant", "begun"))
    assert found.options == {"temperature": 0.0, "top_k": 5, "max_tokens": 7, "seed": 3, "thinking": "low"}
    assert (found.stops, found.stream, found.usage, found.go_on) == (("END",), True, True, True)
    plain = request_of(body(), MODEL)
    assert (plain.options, plain.stops, plain.stream, plain.usage, plain.go_on) == ({}, (), False, False, False)


@pytest.mark.parametrize(
    ("fields", "part", "param"),
    [
        ({"messages": []}, "at least one message", "messages"),
        ({"messages": ["hi"]}, "must be an object", "messages[0]"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "the roles here are", "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "must be a text", "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "type text", "messages[0].content"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "half a character", "messages[0].content"),
        ({"temperature": 11}, "from 0 to 10", "temperature"),
        ({"seed": "x"}, "a whole number", "seed"),
        ({"n": 2}, "not supported", "n"),
        ({"tools": [{"type": "function"}]}, "not supported", "tools"),
        ({"response_format": {"type": "json_object"}}, "not supported", "response_format"),
        ({"stop": [""]}, "up to 16 texts", "stop"),
        ({"stream": "yes"}, "true or false", "stream"),
        ({"reasoning_effort": "medium"}, "it knows low, high", "reasoning_effort"),
    ],
)
def test_what_cannot_be_done_is_said(fields: dict[str, Any], part: str, param: str) -> None:
    with pytest.raises(BadRequest, match=r".") as caught:
        request_of(body(**fields), MODEL)
    assert part in str(caught.value) and caught.value.param == param


@pytest.mark.parametrize("data", [b"{", b"[]", b"\xff"])
def test_bodies_that_are_none(data: bytes) -> None:
    with pytest.raises(BadRequest, match="JSON"):
        request_of(data, MODEL)


@given(st.text("abc", max_size=30), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3), st.data())
def test_stops_are_found_however_the_text_comes(text: str, stops: list[str], data: st.DataObject) -> None:
    cutter, shown, rest = Stops(stops), "", text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        shown, rest = shown + cutter.feed(rest[:size]), rest[size:]
    found = cutter.found
    shown += cutter.finish()
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    assert found == bool(ends)
    if not ends:
        assert shown == text
    else:  # the first stop that is complete counts, as the text comes
        assert text.startswith(shown) and not any(stop in shown for stop in stops)
        assert len(shown) < min(ends)
