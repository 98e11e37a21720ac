"""A sequence's memory as bytes, and back: what KV snapshots and checkpoints are made of."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

State = NDArray[np.uint8]  # a sequence's memory as llama.cpp writes it; whoever has one does not change it


class SequenceState:
    """The part of a Context that saves and restores its one sequence."""

    ptr: int
    kind: str  # what the bytes mean beside the model, as far as it is chosen when the context is made
    _lib: Any

    def state_size(self, *, partial: bool = False) -> int:
        """Bytes that `state` takes now; 0 where llama.cpp cannot tell."""
        return int(self._lib.llama_state_seq_get_size_ext(self.ptr, 0, self._flags(partial)))

    def state(self, *, partial: bool = False) -> State | None:
        """The sequence's memory; None where llama.cpp refuses. Raises MemoryError.

        `partial`: recurrent states and sliding windows only, without the attention layers that can be cut back.
        """
        data: State = np.empty(self.state_size(partial=partial), np.uint8)
        if not data.size:
            return None
        got = self._lib.llama_state_seq_get_data_ext(self.ptr, _address(data), data.size, 0, self._flags(partial))
        return data if got == data.size else None

    def set_state(self, data: State, *, partial: bool = False) -> bool:
        """Puts back what `state` gave; False where llama.cpp refuses it: the memory must then be cleared.

        `partial`: the attention layers stay as they are; what they hold beyond the state's end must be removed.
        """
        if not data.size:
            return False
        return bool(
            self._lib.llama_state_seq_set_data_ext(self.ptr, _address(data), data.size, 0, self._flags(partial))
        )

    def _flags(self, partial: bool) -> int:
        return int(self._lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) if partial else 0


def _address(data: State) -> Any:
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
