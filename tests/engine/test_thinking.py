"""Which ways of thinking a chat template knows."""

from __future__ import annotations

import pytest

from strata_tui.engine.templates import jinja_formatter
from strata_tui.engine.thinking import Variables, thinking_modes

HELLO = [{"role": "user", "content": "Hello"}]
SWITCH = "{{ messages[0].content }}{% if enable_thinking is defined and enable_thinking is false %}<no>{% endif %}"
ANY_EFFORT = "{% set reasoning_effort = reasoning_effort or 'medium' %}Reasoning: {{ reasoning_effort }}"
FEW_EFFORTS = (
    "{% if reasoning_effort is defined and reasoning_effort not in ['high', 'no_think'] %}"
    "{{ raise_exception('no') }}{% endif %}{% if reasoning_effort == 'high' %}hard{% endif %}"
)
BOTH = "{% if thinking %}<think>{% if reasoning_effort == 'max' %}deep{% endif %}{% endif %}"


@pytest.mark.parametrize(
    ("template", "modes"),
    [
        (SWITCH, {"on": {"enable_thinking": True}, "off": {"enable_thinking": False}}),
        (ANY_EFFORT, {word: {"reasoning_effort": word} for word in ("low", "medium", "high")}),
        (FEW_EFFORTS, {"off": {"reasoning_effort": "no_think"}, "high": {"reasoning_effort": "high"}}),
        (
            BOTH,
            {
                "on": {"thinking": True},
                "off": {"thinking": False},
                "max": {"thinking": True, "reasoning_effort": "max"},
            },
        ),
        ("{{ messages[0].content }}", {}),
        ("{# thinking #}{{ messages[0].thinking }}{{ enable_thinking_hard }}", {}),
        ("{% if enable_thinking %}{{ raise_exception('not here') }}{% endif %}", {}),
    ],
)
def test_modes(template: str, modes: dict[str, Variables]) -> None:
    render = jinja_formatter(template, bos="", eos="")
    found = thinking_modes(template, lambda variables: render(HELLO, variables))
    assert found == modes
    texts = [render(HELLO, variables) for variables in found.values()]
    assert len(set(texts)) == len(texts)
