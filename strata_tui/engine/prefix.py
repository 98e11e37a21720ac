"""Which tokens the KV cache holds, and how much of it the next prompt can use again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Memory(Protocol):
    """One sequence's memory in llama.cpp (KV cache, recurrent states, or both)."""

    def remove_from(self, position: int) -> bool: ...
    def clear(self) -> None: ...
    def pos_min(self) -> int: ...
    def pos_max(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Reuse:
    """`kept` tokens are in the cache and need not be read; `notice` says why fewer than could be hoped for."""

    kept: int
    notice: str = ""


class Prefix:
    """The tokens in a memory. Every cut is checked against what the memory then reports."""

    def __init__(self, memory: Memory, *, has_state: bool, window: int) -> None:
        """`has_state`: the model is recurrent or hybrid, so its memory cannot be cut back.

        `window`: tokens of sliding window attention, 0 for none; older ones are gone from its layers.
        """
        self._memory = memory
        self._has_state = has_state
        self._window = window
        self.tokens: list[int] = []
        self.last: list[int] = []  # the last prompt and what was sampled after it, whatever the memory holds of it

    def sampled(self, token: int) -> None:
        """`token` belongs to the reply to the prompt that was prepared last."""
        self.last.append(token)

    def prepare(self, prompt: Sequence[int]) -> Reuse:
        """Cuts the memory to what it shares with `prompt`; at least the prompt's last token stays to be read."""
        self.last = list(prompt)
        cached = len(self.tokens)
        common = _common(self.tokens, prompt[:-1])
        if common == 0:
            self.clear()
            return Reuse(0)
        if common == cached:  # a pure append: nothing to cut
            if self._memory.pos_max() == cached - 1:
                return Reuse(cached)
            return self._read_again(common, "the cache did not hold what was expected")
        if self._has_state:
            return self._read_again(common, "this model's running state cannot be taken back")
        if self._window and self._memory.pos_min() > max(0, common - self._window):
            return self._read_again(common, "this model's sliding window has left the older tokens behind")
        if not self._memory.remove_from(common):
            return self._read_again(common, "this model's cache cannot be cut")
        if self._memory.pos_max() != common - 1:
            return self._read_again(common, "the cache did not hold what was expected")
        del self.tokens[common:]
        return Reuse(common)

    def extend(self, tokens: Sequence[int]) -> None:
        """After a decode that succeeded."""
        self.tokens.extend(tokens)

    def after_abort(self) -> None:
        """After a decode that did not finish: keeps only tokens of finished ones, or nothing at all."""
        known = len(self.tokens)
        if self._has_state or not self._memory.remove_from(known) or self._memory.pos_max() != known - 1:
            self.clear()

    def take_back(self, length: int) -> None:
        """Forgets the tokens from `length` on, where the memory can; else it goes on holding them."""
        if self._has_state or length >= len(self.tokens):
            return
        if self._memory.remove_from(length) and self._memory.pos_max() == length - 1:
            del self.tokens[length:]
        else:
            self.clear()

    def clear(self) -> None:
        self._memory.clear()
        self.tokens.clear()

    def _read_again(self, common: int, why: str) -> Reuse:
        self.clear()
        return Reuse(0, f"Reading {common} known tokens again: {why}.")


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    for i in range(n):
        if a[i] != b[i]:
            return i
    return n
