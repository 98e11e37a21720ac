"""Speculative decoding of one open model: who drafts, windows, the switch and the counters.

A round drafts some tokens (with the model's NextN heads, or from what the text said before), has them verified in
one window of the target (engine_ext/speculate.c), and tells the gate what it cost and gave.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING

from ..errors import UserError
from . import llama
from .counters import DraftCounters
from .llama_state import State
from .modes import Drafting, SwitchState
from .options import EngineOptions
from .sampler import Sampler
from .speculate_gate import Gate, Key
from .speculate_lookup import LONGEST, Lookup

if TYPE_CHECKING:
    from . import _core

MOST = 4  # drafts of a window
HEADS, LOOKUP = "NextN", "look-up"
_BINS = 10  # of a head's confidence
_FEW = 8  # first drafts: with fewer, or none right, nothing is said to pay yet
_UNUSABLE = "The model computed no usable numbers (NaN or infinity): open it again."


@dataclass(slots=True)
class _Plan:
    """The drafts of one round."""

    drafter: str = ""
    drafts: Sequence[int] = ()
    keys: Sequence[Key] = ()


class Spoiled(Exception):
    """The memory could not be cut back behind a rejected draft: it must be cleared and read again, with `tokens`."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens


class Speculation:
    """Belongs to the thread that decodes; `state` and `counters` may be asked from any."""

    def __init__(
        self,
        core: ModuleType,
        target: llama.Context,
        heads: llama.Context | None,
        no_heads: str,
        options: EngineOptions,
        tier: _core.Tier,
        outputs: int = 1,
    ) -> None:
        """`no_heads`: why `heads` is None. `outputs`: rows of one decode that `heads` may give logits for."""
        self._core, self._target = core, target
        self._native = core.Speculator(target.ptr, heads.ptr if heads is not None else 0, outputs, tier)
        self._heads, self._has_heads, self._no_heads = heads, heads is not None, no_heads
        self._min_p, self._looks_up = options.draft_min_p, options.lookup
        self._mode = Drafting.AUTO
        self._gate = Gate()
        self._lookup = Lookup()
        self._counters = DraftCounters()
        self._drafting_ns = 0
        self._recent = ""  # the drafter of the last window with drafts
        self._heads_at = 0  # tokens that the heads have read
        self.last: Sequence[int] = ()  # drafts of the last round
        self._first: dict[str, tuple[int, int]] = {}  # of each drafter: first drafts accepted and offered

    @property
    def missing(self) -> str:
        """Why no NextN heads draft; "" when they do."""
        return "" if self._has_heads else self._no_heads

    def close(self) -> None:
        """Before its contexts."""
        self._native.close()

    def apply(self, mode: Drafting) -> None:
        self._mode = mode

    # A reply

    def begin(self, tokens: Sequence[int], sampler: Sampler, seed: int) -> None:
        """The prompt is read and `sampler` has seen it."""
        self._lookup.reset(tokens)
        self._gate.paused()
        self._native.begin(sampler.address, sampler.greedy, sampler.keep, seed)

    def end(self) -> None:
        """Before the reply's sampler is closed."""
        self._native.end()

    def observe(self, tokens: Sequence[int], position: int) -> None:
        """A part of the prompt was decoded."""
        self._heads_at = position + len(tokens)
        status = self._native.observe(tokens, position)
        if status < 0:
            raise UserError(f"The model's NextN heads could not read the prompt (llama_decode {status}).")

    def cut(self, position: int) -> None:
        """The memory was cut to `position` tokens."""
        self._native.cut(position)

    def settled(self, position: int) -> tuple[State, bytes] | None:
        """Of drafting behind `position` tokens, for `resume`: the heads' memory and a hidden row. None without heads,
        and where they do not know these tokens. Raises MemoryError."""
        if self._heads is None or (carry := self._native.settle(position)) is None:
            return None
        memory = self._heads.state()
        return None if memory is None else (memory, carry)

    def resume(self, position: int, state: tuple[State, bytes] | None) -> None:
        """The memory was given a snapshot of `position` tokens, with this state of drafting, or with none."""
        self._native.cut(0)
        if self._heads is None or state is None:
            return
        memory, carry = state
        if self._heads.set_state(memory) and self._heads.pos_max() == position - 1:
            self._native.resume(position, carry)
        else:
            self._heads.clear()

    def first(self) -> int:
        """The reply's first token, from the prompt's last logits. Raises UserError."""
        status, token = self._native.sample()
        if status != 0:
            raise UserError(_UNUSABLE)
        self._lookup.extend([token])
        return int(token)

    def round(self, pending: int, position: int, room: int) -> tuple[int, list[int]]:
        """One window from `pending` on, which is to stand at `position`; it may give up to `room` tokens.

        (llama_decode's code, tokens). With OK, the memory holds `pending` and the tokens but the last.
        Raises UserError where numbers are unusable, and Spoiled; the memory must then be cleared.
        """
        most = max(0, min(self._mode.most, room - 1, self._target.size - position - 1, MOST))
        begun = time.perf_counter_ns()
        plan = self._plan(pending, position, most) if most else _Plan()
        self._drafting_ns += time.perf_counter_ns() - begun
        self.last = plan.drafts
        status, tokens = self._native.step(pending, position, plan.drafts, own=plan.drafter == HEADS)
        took = self._native.took_ns  # a frame that is being drawn is not the window's cost
        if status == self._core.STEP_NOT_FINITE:
            raise UserError(_UNUSABLE)
        if status == self._core.STEP_SPOILED:
            if not tokens:
                raise UserError(
                    "There is no memory for a copy of the model's running state: turn drafts off (/draft off)."
                )
            self._note(plan, took, tokens)
            raise Spoiled(tokens)
        if status == llama.OK:
            self._note(plan, took, tokens)
        return status, tokens

    # Drafting

    def _plan(self, pending: int, position: int, most: int) -> _Plan:
        fixed = self._mode is not Drafting.AUTO
        plan = _Plan()
        drafts: Sequence[int] = ()
        match = 0
        if self._looks_up and (fixed or self._gate.may_draft(LOOKUP)):
            drafts, match = self._lookup.draft(most)
        if drafts:
            keys = [(LOOKUP, i, match) for i in range(len(drafts))]
            rates = [self._gate.rate(key, 0.3 + 0.6 * match / LONGEST).value for key in keys]
            n = self._confident(rates, len(rates) if fixed else self._gate.length(LOOKUP, rates))
            plan = _Plan(LOOKUP, drafts[:n], keys[:n]) if n else plan
        if self._has_heads and (fixed or self._gate.may_draft(HEADS, max(0, position - self._heads_at))):
            # a long match is as good as a head, and costs no draft
            if plan.drafts and match >= LONGEST - 2 and len(plan.drafts) == most:
                return plan
            return self._ask_heads(pending, position, most, fixed, plan)
        return plan

    def _confident(self, rates: Sequence[float], n: int) -> int:
        joint = 1.0
        for i, rate in enumerate(rates[:n]):
            joint *= rate
            if joint < self._min_p:
                return i
        return n

    def _ask_heads(self, pending: int, position: int, most: int, fixed: bool, other: _Plan) -> _Plan:
        gate = self._gate
        drafts: list[int] = []
        keys: list[Key] = []
        rates: list[float] = []
        joint, asked, took = 1.0, 0, 0
        most = most if fixed else min(most, gate.longest)
        while len(drafts) < most:
            if drafts and not fixed and not gate.goes_on(rates, rates[-1], HEADS):
                break
            found = self._native.draft(pending, position, not drafts)
            self._heads_at = position + 1
            asked += 1
            took += self._native.took_ns
            if found is None:
                break
            token, p = found
            joint *= p
            if joint < self._min_p:
                break
            key = (HEADS, len(drafts), min(_BINS - 1, int(p * _BINS)))
            drafts.append(token)
            keys.append(key)
            rates.append(gate.rate(key, p).value)
        if not fixed:  # what was asked for costs no account anything
            gate.drafted(HEADS, asked, took / 1e9)
        n = len(drafts) if fixed else gate.length(HEADS, rates)
        return _Plan(HEADS, drafts[:n], keys[:n]) if n else other

    def _note(self, plan: _Plan, took: int, tokens: list[int]) -> None:
        n, got, right = len(plan.drafts), len(tokens), 0
        while right < min(n, got) and tokens[right] == plan.drafts[right]:
            right += 1
        self._lookup.extend(tokens)
        auto = self._mode is Drafting.AUTO
        self._gate.note(window=n + 1, seconds=took / 1e9, drafter=plan.drafter if auto else "", got=got, auto=auto)
        self._gate.judge(plan.keys, right)
        c = self._counters
        self._counters = replace(
            c,
            windows=c.windows + 1,
            drafted_windows=c.drafted_windows + (n > 0),
            tokens=c.tokens + got,
            offered=tuple(x + (i < n) for i, x in enumerate(c.offered)),
            accepted=tuple(x + (i < right) for i, x in enumerate(c.accepted)),
            draft_ns=self._drafting_ns,
            window_ns=c.window_ns + (took if n else 0),
            plain_ns=c.plain_ns + (0 if n else took),
        )
        if n:
            self._recent = plan.drafter
            accepted, offered = self._first.get(plan.drafter, (0, 0))
            self._first[plan.drafter] = accepted + (right > 0), offered + 1

    # What the screen shows

    def counters(self) -> DraftCounters:
        """Since the model was opened."""
        return self._counters

    def state(self) -> SwitchState:
        """The switch: `actual` is "off", "on", or with auto what drafts at the moment."""
        wanted = self._mode.value
        if self._mode is Drafting.OFF:
            return SwitchState(wanted, "off", "off: chosen")
        drafters = ([HEADS] if self._has_heads else []) + ([LOOKUP] if self._looks_up else [])
        without = f"; {self._no_heads}" if self._no_heads else ""
        if self._mode is not Drafting.AUTO:
            return SwitchState(wanted, "on", f"on: {' and '.join(drafters)}{without}")
        idle = [name for name in drafters if self._gate.idle(name)]
        failed = ", ".join(f"{name} does not pay ({self._record(name)})" for name in idle)
        if self._recent and self._recent not in idle:
            right, offered = self._first.get(self._recent, (0, 0))
            verdict = "pays" if right and offered >= _FEW else "is being tried"
            why = f"{self._recent} {verdict} ({self._record(self._recent)})" + (f", {failed}" if failed else "")
            return SwitchState(wanted, "on", f"on: {why}{without}")
        if not drafters:
            return SwitchState(wanted, "off", f"off: {self._no_heads}")
        return SwitchState(wanted, "off", f"off: {failed or 'no draft was tried yet'}{without}")

    def _record(self, drafter: str) -> str:
        accepted, offered = self._first.get(drafter, (0, 0))
        return f"{accepted} of {offered} first drafts right" if offered else "its drafts are not worth a try"
