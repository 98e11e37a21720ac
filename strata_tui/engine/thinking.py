"""How a chat template can be told to think, less or not at all: found out by rendering it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

Variables = Mapping[str, object]
Probe = Callable[[Variables], str]  # a short conversation, rendered with these variables; raises what templates raise

ON, OFF = "on", "off"
_SWITCHES = ("enable_thinking", "thinking")
_EFFORT = "reasoning_effort"
_EFFORTS = ("no_think", "none", "minimal", "low", "medium", "high", "xhigh", "max")
_USUAL = ("low", "medium", "high")  # where a template writes any word into the prompt
_NONE = ("no_think", "none")  # efforts that mean off
_STRANGE = "qzjx"


def thinking_modes(template: str, probe: Probe) -> dict[str, Variables]:
    """Words for the ways of thinking that this template knows, with the variables that ask for them.

    `on` and `off` come from a switch, words such as `low` and `high` from an effort. A word counts only where
    the template renders something of its own for it.
    """
    found: dict[str, Variables] = {}
    on: Variables = {}
    for name in _named(template, _SWITCHES):
        thinks, does_not = _rendered(probe, {name: True}), _rendered(probe, {name: False})
        if thinks is not None and does_not is not None and thinks != does_not:
            on = {name: True}
            found = {ON: on, OFF: {name: False}}
            break
    seen = {_rendered(probe, on)} if on else set()
    for word in _efforts(template, probe, on):
        variables = {**on, _EFFORT: word}
        text = _rendered(probe, variables)
        if text is not None and text not in seen:
            seen.add(text)
            found.setdefault(OFF if word in _NONE else word, variables)
    return found if len(found) > 1 else {}


def _efforts(template: str, probe: Probe, on: Variables) -> tuple[str, ...]:
    """Efforts that may be known, the least first."""
    if not _named(template, (_EFFORT,)):
        return ()
    if _STRANGE in (_rendered(probe, {**on, _EFFORT: _STRANGE}) or ""):
        return _USUAL
    return tuple(word for word in _EFFORTS if f"'{word}'" in template or f'"{word}"' in template)


def _named(template: str, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if re.search(rf"\b{name}\b", template)]


def _rendered(probe: Probe, variables: Variables) -> str | None:
    try:
        return probe(variables)
    except Exception:  # templates are foreign code and raise anything
        return None
