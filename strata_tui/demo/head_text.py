"""The text that the demo model's NextN head is trained on: the model writes it itself, the user's turns too.

Many conversations at once. Each begins with the chat template's opening; what a user would say is sampled, what
the assistant says is what the demo model would say (greedy, with its repeat penalty). Half of the user's turns
begin with one of a few words, so that there is code and prose, questions and lists.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .head_parts import States, Tokens

SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
USER, ASSISTANT, END = "<|im_start|>user\n", "\n<|im_start|>assistant\n", "<|im_end|>"
STARTS = (
    "What", "Why", "How do I", "How does", "Can you", "Write a story about", "Write a poem about", "Explain",
    "Write a Python function that", "Write a C program that", "Write an email", "Give me a list of", "Describe",
    "Fix this code:\n\ndef", "Translate", "Summarize", "Tell me about", "Compare", "Plan a", "Who was", "I am",
    "Continue this text:\n\n", "Write a SQL query", "Write a short article about",
)  # fmt: skip
TURN_LIMIT = {"user": 60, "assistant": 300}  # tokens
PENALTY, WINDOW = 1.08, 64  # as the demo model recommends
TEMPERATURE, TOP_K = 1.0, 50  # of the user's turns
_ROWS = 16  # of the logits, which one thread looks at


@dataclass(slots=True)
class _Talk:
    forced: list[int] = field(default_factory=list)
    speaker: str = "user"
    said: int = 0


class Writer:
    """`talks` conversations of `length` tokens at once, on a ggml device, with plain llama.cpp."""

    def __init__(self, model: Path, device: str, *, talks: int, length: int, threads: int, seed: int) -> None:
        import llama_cpp.llama_cpp as lib

        from ..engine.llama import Model, Placement, library

        library()
        self._lib: Any = lib
        self._model = Model.load(model, placement=Placement(device))
        self._rng = np.random.default_rng(seed)
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_seq_max = talks * length, talks
        params.n_batch = params.n_ubatch = talks
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified, params.embeddings = False, True
        self._context = lib.llama_init_from_model(self._model.ptr, params)
        if not self._context:
            self._model.close()
            raise UserError(f"llama.cpp cannot hold {talks} conversations of {length} tokens: ask for fewer.")
        self._memory = lib.llama_get_memory(self._context)
        self._batch = batch = lib.llama_batch_init(talks, 0, 1)
        batch.n_tokens = talks
        for i in range(talks):
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, i, 1
        self._token, self._position = (np.ctypeslib.as_array(x, (talks,)) for x in (batch.token, batch.pos))
        self._pool = ThreadPoolExecutor(max(1, threads))
        self._parts = [slice(i, min(i + _ROWS, talks)) for i in range(0, talks, _ROWS)]
        self._tokens = np.zeros((talks, length), np.int32)

    def write(self, enough: Callable[[int], bool]) -> Iterator[tuple[Tokens, States]]:
        """Conversations of the full length, (talks, length), and the model's final states, (talks, length, width),
        again and again until `enough(tokens so far)`.
        """
        talks, length = self._tokens.shape
        width, so_far = int(self._lib.llama_model_n_embd(self._model.ptr)), 0
        while not enough(so_far):
            states = np.empty((talks, length, width), np.float16)
            speakers = [self._begun(i) for i in range(talks)]
            self._lib.llama_memory_clear(self._memory, False)
            for n in range(length):  # one token of each at a time, so that all end together
                states[:, n] = self._round(n, speakers, width)
            so_far += talks * length
            yield self._tokens.astype(np.uint16), states

    def _begun(self, i: int) -> _Talk:
        talk = _Talk(forced=self._ids(SYSTEM + USER) + self._start())
        self._tokens[i, 0] = talk.forced.pop(0)
        return talk

    def _start(self) -> list[int]:
        if self._rng.random() < 0.5:
            return []
        return self._ids(str(self._rng.choice(np.array(STARTS))))

    def _ids(self, text: str) -> list[int]:
        return self._model.tokenize(text)

    def _round(self, n: int, talks: list[_Talk], width: int) -> NDArray[np.float32]:
        """Reads token n of each, chooses token n + 1; the states at n."""
        self._token[:], self._position[:] = self._tokens[:, n], n
        status = self._lib.llama_decode(self._context, self._batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        logits = np.ctypeslib.as_array(self._lib.llama_get_logits(self._context), (len(talks), self._model.n_vocab))
        if n + 1 < self._tokens.shape[1]:
            noise = self._rng.gumbel(size=(len(talks), TOP_K)).astype(np.float32)
            users = np.array([talk.speaker == "user" and not talk.forced for talk in talks])
            parts = self._pool.map(
                lambda rows: self._choose(logits[rows], n, rows, users[rows], noise[rows]), self._parts
            )
            for i, token in enumerate(np.concatenate(list(parts)).tolist()):
                self._tokens[i, n + 1] = self._next(talks[i], token)
        return np.ctypeslib.as_array(self._lib.llama_get_embeddings(self._context), (len(talks), width))

    def _choose(
        self, logits: NDArray[np.float32], n: int, rows: slice, users: NDArray[np.bool_], noise: NDArray[np.float32]
    ) -> NDArray[np.int64]:
        sampled = {}
        for i in np.flatnonzero(users):
            top = np.argpartition(logits[i], -TOP_K)[-TOP_K:]
            sampled[i] = top[(logits[i, top] / TEMPERATURE + noise[i]).argmax()]
        last = self._tokens[rows, max(0, n + 1 - WINDOW) : n + 1]
        seen = np.take_along_axis(logits, last, 1)
        np.put_along_axis(logits, last, np.where(seen > 0, seen / PENALTY, seen * PENALTY), 1)
        out: NDArray[np.int64] = logits.argmax(1)
        for i, token in sampled.items():
            out[i] = token
        return out

    def _next(self, talk: _Talk, token: int) -> int:
        if talk.forced:
            return talk.forced.pop(0)
        talk.said += 1
        if not self._model.is_end(token) and talk.said < TURN_LIMIT[talk.speaker]:
            return token
        talk.said = 0
        if talk.speaker == "user":
            talk.speaker, talk.forced = "assistant", self._ids(END + ASSISTANT)
        else:
            talk.speaker, talk.forced = "user", self._ids(END + "\n" + USER) + self._start()
        return talk.forced.pop(0)

    def close(self) -> None:
        self._pool.shutdown()
        self._lib.llama_batch_free(self._batch)
        self._lib.llama_free(self._context)
        self._model.close()


@dataclass(frozen=True, slots=True)
class Markers:
    """Tokens at which an answer begins (behind them) and ends."""

    begin: tuple[int, ...]
    end: int

    @classmethod
    def of(cls, model: Path) -> Markers:
        from ..engine.llama import Model

        loaded = Model.load(model)
        try:
            return cls(tuple(loaded.tokenize(ASSISTANT.strip("\n") + "\n")), loaded.tokenize(END)[0])
        finally:
            loaded.close()


def answers(tokens: NDArray[Any], markers: Markers) -> NDArray[np.bool_]:
    """Which tokens the assistant says, its end of turn among them; of the shape of `tokens`, (talks, length)."""
    begin = markers.begin
    found = np.zeros(tokens.shape, np.bool_)
    for talk, row in zip(tokens, found, strict=True):
        starts = np.flatnonzero(np.all([talk[k : len(talk) - len(begin) + 1 + k] == t for k, t in enumerate(begin)], 0))
        ends = np.flatnonzero(talk == markers.end)
        for start in starts + len(begin):
            behind = ends[ends >= start]
            row[start : behind[0] + 1 if len(behind) else len(talk)] = True
    return found


def until(seconds: float, tokens: int) -> Callable[[int], bool]:
    """Enough after so much time or so many tokens."""
    end = time.monotonic() + seconds
    return lambda so_far: so_far >= tokens or time.monotonic() >= end
