"""What a model's NextN heads draft behind a text, computed from scratch with nothing of ours in the way of the rows."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import llama_cpp.llama_cpp_ext as ext
import numpy as np
from numpy.typing import NDArray
from speculating import Open

from strata_tui.engine import llama
from strata_tui.engine.llama import FLASH_OFF, Context, ContextOptions

Rows = NDArray[np.float32]


class Reference:
    """Beside what is open, and on its memory: that must be read again afterwards."""

    def __init__(self, o: Open, size: int = 512) -> None:
        self._o, self._lib = o, llama.library()
        self._heads = int(self._lib.llama_model_n_layer_nextn(o.model.ptr))
        self._width = int(self._lib.llama_model_n_embd(o.model.ptr))
        self._context = Context(o.model, ContextOptions(size, size, 1, FLASH_OFF, outputs=size, heads=True), o.tier)
        ext.llama_set_embeddings_nextn(self._context.ptr, True, True)
        self._batch = self._lib.llama_batch_init(size, 0, 1)
        self._rows = np.zeros((size, self._width), np.float32)
        self._batch.embd = self._rows.ctypes.data_as(ctypes.POINTER(ctypes.c_float))

    def close(self) -> None:
        self._batch.embd = None
        self._lib.llama_batch_free(self._batch)
        self._context.close()

    def draft(self, text: Sequence[int], most: int, *, known: bool = True) -> list[int]:
        """Up to `most` tokens behind `text`. `known`: whether the hidden row in front of its end is; else zeros."""
        rows = self._hidden(text[:-1])
        if not known:
            rows[-1] = 0
        tokens, before = list(text), [np.zeros(self._width, np.float32), *rows]
        drafts: list[int] = []
        for k in range(most if self._heads == 1 else min(most, self._heads)):
            self._context.clear()
            ext.llama_set_nextn_layer_offset(self._context.ptr, 0 if self._heads == 1 else k)
            logits, hidden = self._decode(tokens, before)
            drafts.append(int(logits.argmax()))
            tokens.append(drafts[-1])
            before.append(hidden)
        return drafts

    def _hidden(self, text: Sequence[int]) -> Rows:
        """(tokens, width): the model's hidden rows."""
        o, rows = self._o, []
        o.context.clear()
        for start in range(0, len(text), o.context.batch):
            part = text[start : start + o.context.batch]
            assert o.context.decode(part, start) == llama.OK
            pointer = ctypes.cast(ext.llama_get_embeddings_nextn(o.context.ptr), ctypes.POINTER(ctypes.c_float))
            rows.append(np.ctypeslib.as_array(pointer, (len(part), self._width)).copy())
        return np.concatenate(rows)

    def _decode(self, tokens: Sequence[int], before: Sequence[Rows]) -> tuple[Rows, Rows]:
        """Logits and hidden row behind the last token."""
        batch, n = self._batch, len(tokens)
        batch.n_tokens = n
        for i, (token, row) in enumerate(zip(tokens, before, strict=True)):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
            self._rows[i] = row
        assert self._lib.llama_decode(self._context.ptr, batch) == llama.OK
        pointer = ctypes.cast(
            ext.llama_get_embeddings_nextn_ith(self._context.ptr, n - 1), ctypes.POINTER(ctypes.c_float)
        )
        return self._context.logits(n - 1).copy(), np.ctypeslib.as_array(pointer, (self._width,)).copy()
