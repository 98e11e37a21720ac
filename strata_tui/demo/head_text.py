"""The text that the demo model's NextN head is trained on: the model writes it itself, the user's turns too.

Many conversations at once. Each begins with the chat template's opening; what a user would say is sampled, what
the assistant says is what the demo model would say (greedy, with its repeat penalty). Half of the user's turns
begin with one of a few words, so that there is code and prose, questions and lists.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError

Tokens = NDArray[np.uint16]

SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
USER, ASSISTANT, END = "<|im_start|>user\n", "\n<|im_start|>assistant\n", "<|im_end|>"
STARTS = (
    "What", "Why", "How do I", "How does", "Can you", "Write a story about", "Write a poem about", "Explain",
    "Write a Python function that", "Write a C program that", "Write an email", "Give me a list of", "Describe",
    "Fix this code:\n\ndef", "Translate", "Summarize", "Tell me about", "Compare", "Plan a", "Who was", "I am",
    "Continue this text:\n\n", "Write a SQL query", "Write a short article about",
)  # fmt: skip
TURN_LIMIT = {"user": 80, "assistant": 300}  # tokens
PENALTY, WINDOW = 1.08, 64  # as the demo model recommends
TEMPERATURE, TOP_K = 1.0, 50  # of the user's turns


@dataclass(slots=True)
class _Talk:
    tokens: list[int] = field(default_factory=list)
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
        self._length, self._rng = length, np.random.default_rng(seed)
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_seq_max = talks * length, talks
        params.n_batch = params.n_ubatch = talks
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = False
        self._context = lib.llama_init_from_model(self._model.ptr, params)
        if not self._context:
            self._model.close()
            raise UserError(f"llama.cpp cannot hold {talks} conversations of {length} tokens: ask for fewer.")
        self._memory = lib.llama_get_memory(self._context)
        self._batch = lib.llama_batch_init(talks, 0, 1)
        self._pool = ThreadPoolExecutor(max(1, threads))
        self._parts = [part for part in np.array_split(np.arange(talks), max(1, threads)) if len(part)]
        self._talks = [self._begun() for _ in range(talks)]

    def write(self, enough: Callable[[int], bool]) -> list[Tokens]:
        """Conversations of the full length, until `enough(tokens so far)`."""
        done: list[Tokens] = []
        while not enough(len(done) * self._length):
            for i, talk in enumerate(self._talks):
                if len(talk.tokens) == self._length:
                    done.append(np.array(talk.tokens, np.uint16))
                    self._talks[i] = self._begun()
                    self._lib.llama_memory_seq_rm(self._memory, i, -1, -1)
            self._round()
        return done

    def _begun(self) -> _Talk:
        talk = _Talk(forced=self._ids(SYSTEM + USER) + self._start())
        talk.tokens.append(talk.forced.pop(0))
        return talk

    def _start(self) -> list[int]:
        if self._rng.random() < 0.5:
            return []
        return self._ids(str(self._rng.choice(np.array(STARTS))))

    def _ids(self, text: str) -> list[int]:
        return self._model.tokenize(text)

    def _round(self) -> None:
        batch = self._batch
        batch.n_tokens = len(self._talks)
        for i, talk in enumerate(self._talks):
            batch.token[i], batch.pos[i] = talk.tokens[-1], len(talk.tokens) - 1
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, i, 1
        status = self._lib.llama_decode(self._context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        pointer = self._lib.llama_get_logits(self._context)
        logits = np.ctypeslib.as_array(pointer, (len(self._talks), self._model.n_vocab))
        noise = self._rng.integers(0, 2**32, len(self._talks))
        chosen = np.concatenate(list(self._pool.map(lambda rows: self._choose(logits, rows, noise), self._parts)))
        for talk, token in zip(self._talks, chosen.tolist(), strict=True):
            self._append(talk, token)

    def _choose(self, logits: NDArray[np.float32], rows: NDArray[np.int64], noise: NDArray[np.int64]) -> Any:
        out = np.zeros(len(rows), np.int64)
        for k, i in enumerate(rows):
            talk, row = self._talks[i], logits[i]
            if talk.forced:
                continue
            if talk.speaker == "user":
                rng = np.random.default_rng(noise[i])
                top = np.argpartition(row, -TOP_K)[-TOP_K:]
                out[k] = top[(row[top] / TEMPERATURE + rng.gumbel(size=TOP_K)).argmax()]
            else:
                last = talk.tokens[-WINDOW:]
                seen = row[last]
                row[last] = np.where(seen > 0, seen / PENALTY, seen * PENALTY)
                out[k] = row.argmax()
        return out

    def _append(self, talk: _Talk, token: int) -> None:
        if talk.forced:
            talk.tokens.append(talk.forced.pop(0))
            return
        talk.said += 1
        ends = self._model.is_end(token) or talk.said >= TURN_LIMIT[talk.speaker]
        if not ends:
            talk.tokens.append(token)
            return
        talk.said = 0
        if talk.speaker == "user":
            talk.speaker, talk.forced = "assistant", self._ids(END + ASSISTANT)
        else:
            talk.speaker, talk.forced = "user", self._ids(END + "\n" + USER) + self._start()
        talk.tokens.append(talk.forced.pop(0))

    def close(self) -> None:
        self._pool.shutdown()
        self._lib.llama_batch_free(self._batch)
        self._lib.llama_free(self._context)
        self._model.close()


def final_states(model: Path, device: str, texts: Sequence[Tokens], threads: int) -> list[NDArray[np.float16]]:
    """The model's final hidden states, (tokens, width) a text, as its NextN head would be given them."""
    from llama_cpp.llama_cpp_ext import llama_get_embeddings_nextn, llama_set_embeddings_nextn

    from ..engine.llama import OK, Context, ContextOptions, Model, Placement, library

    lib = library()
    loaded = Model.load(model, placement=Placement(device))
    longest = max(map(len, texts))
    context = Context(loaded, ContextOptions(longest, longest, threads, outputs=1))
    width = int(lib.llama_model_n_embd(loaded.ptr))
    found = []
    try:
        llama_set_embeddings_nextn(context.ptr, True, False)
        for text in texts:
            context.clear()
            status = context.decode(text.tolist(), 0)
            if status != OK:
                raise RuntimeError(f"llama_decode returned {status}")
            pointer = ctypes.cast(llama_get_embeddings_nextn(context.ptr), ctypes.POINTER(ctypes.c_float))
            found.append(np.ctypeslib.as_array(pointer, (len(text), width)).astype(np.float16))
    finally:
        context.close()
        loaded.close()
    return found


def until(seconds: float, tokens: int) -> Callable[[int], bool]:
    """Enough after so much time or so many tokens."""
    end = time.monotonic() + seconds
    return lambda so_far: so_far >= tokens or time.monotonic() >= end
