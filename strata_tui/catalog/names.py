"""A model by its name or a part of it."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import UserError
from .scan import Found


def choose(text: str, models: Iterable[Found]) -> Found | None:
    """The usable model of that name, else the one whose name holds the text; None where none does.

    Raises UserError that names them where there are several.
    """
    usable = [one for one in models if one.info is not None]
    wanted = text.lower()
    exact = [one for one in usable if one.name.lower() == wanted]
    hits = exact or [one for one in usable if wanted in one.name.lower()]
    if len(hits) > 1:
        names = ", ".join(one.name for one in hits[:5])
        raise UserError(f"{text} may mean {len(hits)} models: {names}{', ...' if len(hits) > 5 else ''}.")
    return hits[0] if hits else None
