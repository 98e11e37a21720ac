"""Renders chat templates: with Jinja, or with the template of llama.cpp's own list that looks like it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Protocol

from .llama import library

_NONE: Mapping[str, object] = {}


class Render(Protocol):
    """Renders messages with variables of the template's own; raises what templates raise."""

    def __call__(self, messages: list[dict[str, str]], variables: Mapping[str, object] = ...) -> str: ...


def jinja_formatter(template: str, *, bos: str, eos: str) -> Render:
    """Renders messages ({"role", "content"}) with a Jinja template; it and its result raise what templates raise."""
    library()
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    formatter = Jinja2ChatFormatter(template=template, eos_token=eos, bos_token=bos)

    def render(messages: list[dict[str, str]], variables: Mapping[str, object] = _NONE) -> str:
        formatted: Any = formatter(messages=messages, **variables)  # type: ignore[arg-type]
        return str(formatted.prompt)

    return render


def builtin_template(template: str, messages: list[dict[str, str]]) -> str | None:
    """Renders with the template of llama.cpp's own list that looks like `template`; None where none does."""
    lib = library()
    chat = (lib.llama_chat_message * len(messages))()
    for slot, message in zip(chat, messages, strict=True):
        slot.role = message["role"].encode()
        slot.content = message["content"].encode("utf-8", "replace")
    size = 512 + 2 * sum(len(message["content"].encode("utf-8", "replace")) for message in messages)
    while True:
        out = ctypes.create_string_buffer(size)
        n = int(lib.llama_chat_apply_template(template.encode(), chat, len(messages), True, out, size))
        if n < 0:
            return None
        if n <= size:
            return out.raw[:n].decode("utf-8", "replace")
        size = n
