"""What a client asks for: its JSON, checked, as messages and options of a reply."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..config import SPECS
from ..engine.events import Message, ModelInfo

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
# Names of the interface and of llama.cpp's server -> ours.
_OPTIONS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "top_n_sigma": "top_n_sigma",
    "typical_p": "typical_p",
    "repeat_penalty": "repeat_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "seed": "seed",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
}
# What would change the reply and is not done here, with the values that ask for nothing.
_REFUSED: Mapping[str, tuple[Any, ...]] = {
    "tools": ([],),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "n": (1,),
    "logprobs": (False,),
    "logit_bias": ({},),
    "audio": (),
}
_MOST_STOPS = 16


class BadRequest(Exception):
    """One sentence for the client; `param` names the field, `code` is one of the interface's words."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


@dataclass(frozen=True, slots=True)
class Request:
    """One reply that is asked for. `options` are those of a chat (see parameters.py)."""

    messages: tuple[Message, ...]
    options: Mapping[str, Any]
    stops: tuple[str, ...] = ()
    stream: bool = False
    usage: bool = False  # of a stream: the numbers at its end

    @property
    def go_on(self) -> bool:
        """Whether the reply is begun already: the last message is the assistant's own."""
        return self.messages[-1].role == "assistant"


def request_of(body: bytes, model: ModelInfo) -> Request:
    """The request in a body. Raises BadRequest."""
    try:
        data = json.loads(body)
    except ValueError as error:
        raise BadRequest(f"The body is no JSON: {error}.") from None
    if not isinstance(data, dict):
        raise BadRequest("The body must be a JSON object.")
    for name, harmless in _REFUSED.items():
        if data.get(name) is not None and data[name] not in harmless:
            raise BadRequest(f"{name} is not supported here.", name)
    stream = data.get("stream") or False
    wants = data.get("stream_options") or {}
    if not isinstance(stream, bool) or not isinstance(wants, dict):
        raise BadRequest("stream must be true or false, stream_options an object.", "stream")
    return Request(
        _messages(data.get("messages")),
        _options(data, model),
        _stops(data.get("stop")),
        stream,
        bool(wants.get("include_usage")),
    )


def _messages(given: Any) -> tuple[Message, ...]:
    if not isinstance(given, list) or not given:
        raise BadRequest("messages must be a list of at least one message.", "messages")
    found = []
    for number, one in enumerate(given):
        where = f"messages[{number}]"
        if not isinstance(one, dict):
            raise BadRequest(f"{where} must be an object.", where)
        role = _ROLES.get(str(one.get("role")))
        if role is None or one.get("tool_calls"):
            raise BadRequest(f"{where}: the roles here are {', '.join(_ROLES)}, without tool calls.", f"{where}.role")
        found.append(Message(role, _text(one.get("content"), f"{where}.content")))
    return tuple(found)


def _text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return _whole(content, where)
    if not isinstance(content, list):
        raise BadRequest(f"{where} must be a text, or a list of texts.", where)
    parts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise BadRequest(f"{where}: only parts of type text can be read here.", where)
        parts.append(part["text"])
    return _whole("".join(parts), where)


def _whole(text: str, where: str) -> str:
    """The text, which has to be one: JSON can escape halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{where} holds half a character.", where) from None
    return text


def _options(data: Mapping[str, Any], model: ModelInfo) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, ours in _OPTIONS.items():
        value = data.get(name)
        if value is None:
            continue
        try:
            options[ours] = SPECS[ours].check(value)
        except ValueError:
            allowed = SPECS[ours].allowed()
            raise BadRequest(f"{name} is {json.dumps(value)}; allowed: {allowed}.", name) from None
    effort = data.get("reasoning_effort")
    if effort is not None:
        if effort not in model.thinking:
            known = f"it knows {', '.join(model.thinking)}" if model.thinking else "it knows none"
            raise BadRequest(f"The model's chat template does not know this effort: {known}.", "reasoning_effort")
        options["thinking"] = effort
    return options


def _stops(given: Any) -> tuple[str, ...]:
    stops = [given] if isinstance(given, str) else [] if given is None else given
    good = isinstance(stops, list) and len(stops) <= _MOST_STOPS and all(isinstance(s, str) and s for s in stops)
    if not good:
        raise BadRequest(f"stop must be a text, or a list of up to {_MOST_STOPS} texts.", "stop")
    return tuple(stops)
