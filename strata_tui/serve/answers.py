"""The JSON of answers, as OpenAI's chat completions have it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ..engine.counters import ReplyStats
from ..engine.events import FinishReason, ModelInfo

FINISH = {FinishReason.LENGTH: "length", FinishReason.FULL: "length"}  # all others: stop


@dataclass(frozen=True, slots=True)
class Answer:
    """What all pieces of one answer say alike. `created` in Unix seconds."""

    id: str
    created: int
    model: str

    def whole(self, text: str, thinking: str, finish: str, stats: ReplyStats) -> dict[str, Any]:
        """A reply in one piece."""
        message = {"role": "assistant", "content": text} | ({"reasoning_content": thinking} if thinking else {})
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return self._head("chat.completion") | {"choices": [choice], "usage": usage(stats)}

    def piece(self, delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
        """A piece of a stream."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._head("chat.completion.chunk") | {"choices": [choice]}

    def numbers(self, stats: ReplyStats) -> dict[str, Any]:
        """The last piece of a stream that asks for numbers."""
        return self._head("chat.completion.chunk") | {"choices": [], "usage": usage(stats)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def usage(stats: ReplyStats) -> dict[str, Any]:
    """Numbers of tokens; those of the prompt that were in the context already are cached ones."""
    prompt, reply = stats.prompt_tokens, stats.reply_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": reply,
        "total_tokens": prompt + reply,
        "prompt_tokens_details": {"cached_tokens": stats.reused_tokens},
        "completion_tokens_details": {"reasoning_tokens": stats.thinking_tokens},
    }


def models(model: ModelInfo, created: int) -> dict[str, Any]:
    """The list of models: the one that is loaded."""
    meta = {"n_ctx": model.context, "n_ctx_train": model.context_trained, "size": model.file_bytes}
    one = {"id": model.name, "object": "model", "created": created, "owned_by": "strata-tui", "meta": meta}
    return {"object": "list", "data": [one]}


def failure(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """An error."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def encoded(value: object) -> bytes:
    """JSON as bytes; a lone surrogate, which UTF-8 cannot have, is escaped."""
    return json.dumps(value).encode()
