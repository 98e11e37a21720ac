"""Runs a GGUF on the CPU with plain llama.cpp and copies named tensors out of its graphs.

This is how the demo model's routers are fitted and how expert choices are traced. It needs nothing
of the engine; it is no way to chat.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError

Array = NDArray[Any]

_DTYPES: dict[int, type[np.generic]] = {0: np.float32, 26: np.int32}  # ggml types worth tapping


class _TensorHead(ctypes.Structure):
    """The first fields of ggml_tensor."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
    )


class TappedModel:
    """A model whose graph tensors named by the regex `names` (full match) are kept, in evaluation order.

    `taps` maps a name, such as "ffn_moe_topk-3", to a list with one array per evaluation of shape
    (tokens, ne0), float32 or int32. A tapped node cuts the graph, so this is slow.
    """

    def __init__(self, path: str | Path, names: str = "", *, context: int = 2048, threads: int = 2) -> None:
        import llama_cpp.llama_cpp as lib
        from llama_cpp._logger import set_verbose

        set_verbose(False)
        self._lib: Any = lib
        self._wanted = re.compile(names) if names else None
        self._failure: BaseException | None = None
        self.taps: dict[str, list[Array]] = {}
        lib._lib.ggml_get_name.restype = ctypes.c_char_p
        lib._lib.ggml_get_name.argtypes = [ctypes.c_void_p]
        lib._lib.ggml_backend_tensor_get.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
        lib.llama_backend_init()
        model_params = lib.llama_model_default_params()
        model_params.n_gpu_layers = 0
        model_params.use_extra_bufts = False
        self._model = lib.llama_model_load_from_file(str(path).encode(), model_params)
        if not self._model:
            raise UserError(f"{path}: llama.cpp cannot load this model.")
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, context, min(512, context)
        params.n_threads = params.n_threads_batch = threads
        self._callback = lib.ggml_backend_sched_eval_callback(self._tap)  # ctypes keeps no reference of its own
        if self._wanted:
            params.cb_eval = self._callback
        self._ctx = lib.llama_init_from_model(self._model, params)
        if not self._ctx:
            self.close()
            raise UserError(f"{path}: llama.cpp cannot create a context of {context} tokens.")
        self._vocab = lib.llama_model_get_vocab(self._model)
        self.n_vocab = int(lib.llama_vocab_n_tokens(self._vocab))

    def tokenize(self, text: str) -> list[int]:
        """Tokens of a text; control tokens written out in it are recognised, none is added."""
        raw = text.encode()
        buffer = (self._lib.llama_token * (len(raw) + 8))()
        n = self._lib.llama_tokenize(self._vocab, raw, len(raw), buffer, len(buffer), False, True)
        return list(buffer[:n])

    def text(self, tokens: Sequence[int]) -> str:
        """The text of tokens, control tokens included."""
        piece = ctypes.create_string_buffer(256)
        raw = b""
        for token in tokens:
            n = self._lib.llama_token_to_piece(self._vocab, token, piece, len(piece), 0, True)
            raw += piece.raw[:n]
        return raw.decode("utf-8", "replace")

    def ends_reply(self, token: int) -> bool:
        return bool(self._lib.llama_vocab_is_eog(self._vocab, token))

    def decode(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Appends tokens to the sequence, in one batch; the last one's logits, of shape (n_vocab,)."""
        n = len(tokens)
        array = (self._lib.llama_token * n)(*tokens)  # the batch only points to it
        batch = self._lib.llama_batch_get_one(array, n)
        wanted = (ctypes.c_int8 * n)(*[1] * n)  # without outputs for all, the last layer sees the last token only
        batch.logits = wanted
        status = self._lib.llama_decode(self._ctx, batch)
        if self._failure:
            raise self._failure
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        return np.ctypeslib.as_array(self._lib.llama_get_logits_ith(self._ctx, -1), (self.n_vocab,)).copy()

    def greedy(self, tokens: Sequence[int], count: int) -> list[int]:
        """Up to `count` tokens after a prompt, each the likeliest; stops at the reply's end."""
        reply: list[int] = []
        logits = self.decode(tokens)
        while len(reply) < count:
            token = int(logits.argmax())
            if self.ends_reply(token):
                break
            reply.append(token)
            logits = self.decode([token])
        return reply

    def reset(self) -> None:
        """Forgets the sequence; `taps` stays."""
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self._ctx), True)

    def close(self) -> None:
        if getattr(self, "_ctx", None):
            self._lib.llama_free(self._ctx)
            self._ctx = None
        if self._model:
            self._lib.llama_model_free(self._model)
            self._model = None

    def __enter__(self) -> TappedModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tap(self, tensor: int, ask: bool, _user: object) -> bool:
        # an exception must not cross the C frames above: it is kept for decode()
        try:
            name = self._lib._lib.ggml_get_name(tensor).decode()
            wanted = self._wanted is not None and self._wanted.fullmatch(name) is not None
            if wanted and not ask:
                self.taps.setdefault(name, []).append(self._copy(tensor, name))
            return wanted if ask else True
        except BaseException as error:
            self._failure = error
            return False

    def _copy(self, tensor: int, name: str) -> Array:
        head = _TensorHead.from_address(tensor)
        dtype = _DTYPES.get(head.type)
        if dtype is None or head.ne[2] * head.ne[3] != 1 or head.nb[0] != np.dtype(dtype).itemsize:
            raise TypeError(f"{name} is no plain matrix of float32 or int32")
        width, rows = head.ne[0], head.ne[1]
        out = np.empty((rows, width), dtype)
        for row in range(rows):  # the ids are a view of a wider argsort: rows are not adjacent
            at = out.ctypes.data + row * out.strides[0]
            self._lib._lib.ggml_backend_tensor_get(tensor, at, row * head.nb[1], width * out.itemsize)
        return out
