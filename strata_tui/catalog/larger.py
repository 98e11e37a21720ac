"""The next larger context that an open model could be opened again with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..engine.gguf_info import GgufInfo
from ..engine.options import EngineOptions
from ..engine.plan import Machine, Plan
from ..errors import UserError
from .estimate import estimate


@dataclass(frozen=True, slots=True)
class Larger:
    """`plan` None: there is none, and `why` says why in a sentence's end. `context` in tokens."""

    context: int
    plan: Plan | None = None
    why: str = ""


def larger(info: GgufInfo, there: Machine, options: EngineOptions, now: int, needed: int) -> Larger:
    """The smallest context above `now` that holds `needed` tokens, else the largest that the memory plan allows.

    Contexts are `now` doubled and doubled again, at most what the model was trained for.
    """
    best = Larger(now, None, f"the model was trained for {info.context_trained} tokens")
    for context in _sizes(now, info.context_trained):
        try:
            plan = estimate(info, there, replace(options, context=context))
        except UserError as error:
            return best if best.plan else Larger(context, None, str(error))
        best = Larger(context, plan)
        if context >= needed:
            break
    return best


def _sizes(now: int, trained: int | None) -> Iterator[int]:
    size = now
    while trained is None or size < trained:
        size = size * 2 if trained is None else min(size * 2, trained)
        yield size
