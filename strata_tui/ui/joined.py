"""Events of one drain with neighbouring pieces of text put together, so that each paint is one update."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from ..engine.events import Event, LoadProgress, PromptProgress, TextDelta


def joined(events: Iterable[Event]) -> list[Event]:
    """The same events in order; runs of text become one piece, of runs of progress only the last is kept."""
    result: list[Event] = []
    for _, group in groupby(events, _key):
        run = list(group)
        first = run[0]
        if isinstance(first, TextDelta):
            result.append(replace(first, text="".join(e.text for e in run if isinstance(e, TextDelta))))
        elif isinstance(first, LoadProgress | PromptProgress):
            result.append(run[-1])
        else:
            result.extend(run)
    return result


def _key(event: Event) -> object:
    if isinstance(event, TextDelta):
        return (TextDelta, event.reply_id, event.thinking)
    if isinstance(event, PromptProgress):
        return (PromptProgress, event.reply_id)
    return type(event)
