"""Which tokens the KV cache holds, and how much of it the next prompt can use again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .checkpoints import Checkpoint, Checkpoints
from .llama_state import State


class Memory(Protocol):
    """One sequence's memory in llama.cpp (KV cache, recurrent states, or both)."""

    def remove_from(self, position: int) -> bool: ...
    def clear(self) -> None: ...
    def pos_min(self) -> int: ...
    def pos_max(self) -> int: ...
    def set_state(self, data: State, *, partial: bool = False) -> bool: ...


@dataclass(frozen=True, slots=True)
class Reuse:
    """`kept` tokens are in the cache and need not be read; `notice` says why fewer than could be hoped for."""

    kept: int
    notice: str = ""
    known: int = 0  # tokens of the prompt that were in the cache, or in a snapshot, before
    source: str = ""  # where `kept` tokens come from: "" the context itself, "ram" or "disk" a snapshot


class Prefix:
    """The tokens in a memory. Every cut is checked against what the memory then reports."""

    def __init__(self, memory: Memory, checkpoints: Checkpoints, *, has_state: bool, window: int) -> None:
        """`has_state`: the model is recurrent or hybrid, so its memory cannot be cut back.

        `window`: tokens of sliding window attention, 0 for none; older ones are gone from its layers.
        """
        self._memory = memory
        self._has_state = has_state
        self._window = window
        self.checkpoints = checkpoints
        self.owner = ""  # the chat whose tokens these are; "": of no chat
        self.tokens: list[int] = []
        self.last: list[int] = []  # the last prompt and what was sampled after it, whatever the memory holds of it

    @property
    def rigid(self) -> bool:
        """Whether a cut may need a checkpoint."""
        return self._has_state or self._window > 0

    @property
    def running(self) -> bool:
        """Whether every cut needs a checkpoint."""
        return self._has_state

    def sampled(self, token: int) -> None:
        """`token` belongs to the reply to the prompt that was prepared last."""
        self.last.append(token)

    def reusable(self, prompt: Sequence[int]) -> int:
        """How many tokens `prepare` would keep, as far as can be told before."""
        shared = common(self.tokens, prompt[:-1])
        if shared == len(self.tokens) or not (self._has_state or self._out_of_window(shared, self._memory.pos_min())):
            return shared
        point = self.checkpoints.at_most(shared)
        return point.position if point is not None else 0

    def restorable(self, held: int, shared: int, positions: Iterable[int]) -> int:
        """As `reusable`, of a snapshot of `held` tokens with checkpoints at `positions`, of which `shared` fit."""
        if shared == held or not (self._has_state or self._out_of_window(shared, max(0, held - self._window))):
            return shared
        return max((p for p in positions if p <= shared), default=0)

    def prepare(self, prompt: Sequence[int]) -> Reuse:
        """Cuts the memory to what it shares with `prompt`; at least the prompt's last token stays to be read."""
        self.last = list(prompt)
        cached = len(self.tokens)
        shared = common(self.tokens, prompt[:-1])
        if shared == 0:
            self.clear()
            return Reuse(0)
        if shared == cached:  # a pure append: nothing to cut
            if self._memory.pos_max() == cached - 1:
                return Reuse(cached, known=shared)
            return self._read_again(shared, "the cache did not hold what was expected")
        if self._has_state:
            return self._go_back(shared, "this model's running state cannot be taken back")
        if self._out_of_window(shared, self._memory.pos_min()):
            return self._go_back(shared, "this model's sliding window has left the older tokens behind")
        if not self._memory.remove_from(shared):
            return self._go_back(shared, "this model's cache cannot be cut")
        if self._memory.pos_max() != shared - 1:
            return self._read_again(shared, "the cache did not hold what was expected")
        self._cut(shared)
        return Reuse(shared, known=shared)

    def extend(self, tokens: Sequence[int]) -> None:
        """After a decode that succeeded."""
        self.tokens.extend(tokens)

    def checkpoint(self, *, passing: bool = False, early: bool = False) -> None:
        """Keeps the way back to the tokens that are there now, where the memory cannot simply be cut."""
        if self.rigid:
            self.checkpoints.take(len(self.tokens), passing=passing, early=early)

    def adopt(self, tokens: Sequence[int], checkpoints: Iterable[Checkpoint], owner: str) -> bool:
        """The memory was given a snapshot of `tokens`. False where it does not hold them: it is empty then."""
        held = len(tokens)
        if self._memory.pos_max() != held - 1 or self._out_of_window(held, self._memory.pos_min()):
            self.clear()
            return False
        self.tokens, self.owner = list(tokens), owner
        self.checkpoints.adopt(checkpoints)
        return True

    def after_abort(self) -> None:
        """After a decode that did not finish: keeps only tokens of finished ones, or nothing at all."""
        known = len(self.tokens)
        if not self._has_state and self._memory.remove_from(known) and self._memory.pos_max() == known - 1:
            return
        point = self.checkpoints.at_most(known)
        if point is None or not self._return_to(point):
            self.clear()

    def take_back(self, length: int) -> None:
        """Forgets the tokens from `length` on, where the memory can; else it goes on holding them."""
        if self._has_state or length >= len(self.tokens):
            return
        if self._memory.remove_from(length) and self._memory.pos_max() == length - 1:
            self._cut(length)
        else:
            self.clear()

    def clear(self) -> None:
        self._memory.clear()
        self._cut(0)

    def _cut(self, length: int) -> None:
        del self.tokens[length:]
        self.checkpoints.cut(length)

    def _out_of_window(self, length: int, oldest: int) -> bool:
        """Whether tokens that a sequence of `length` must see are gone, where `oldest` is the first one left."""
        return self._window > 0 and oldest > max(0, length - self._window)

    def _go_back(self, shared: int, why: str) -> Reuse:
        """To the last checkpoint that the prompt shares."""
        point = self.checkpoints.at_most(shared)
        if point is None or not self._return_to(point):
            return self._read_again(shared, why)
        return Reuse(point.position, known=shared)

    def _return_to(self, point: Checkpoint) -> bool:
        """Whether the memory is at the checkpoint now; else it must be cleared."""
        memory, position = self._memory, point.position
        if not memory.set_state(point.data, partial=True) or not memory.remove_from(position):
            return False
        if memory.pos_max() != position - 1 or self._out_of_window(position, memory.pos_min()):
            return False
        self._cut(position)
        return True

    def _read_again(self, shared: int, why: str) -> Reuse:
        self.clear()
        return Reuse(0, f"Reading {shared} known tokens again: {why}.", known=shared)


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    for i in range(n):
        if a[i] != b[i]:
            return i
    return n
