"""Taking what was read into the store, and saying what came of it."""

from __future__ import annotations

from collections import Counter

from ...text import clean_line
from ..store import Store
from .reading import Import

_PLURALS = {"picture or file": "pictures or files"}


def take_in(store: Store, found: Import) -> str:
    """Adds the chats, all or none, and waits for it; one sentence of what is new, known, and left out.

    Raises UserError.
    """
    keys = store.add_chats(found.chats).result()
    store.index()
    new = [chat for chat, key in zip(found.chats, keys, strict=True) if key is not None]
    messages = sum(len(chat.messages) for chat in new)
    branches = sum(len({*range(len(chat.messages))} - {m.parent for m in chat.messages}) for chat in new)
    text = f"{_count(len(new), 'chat')} with {_count(messages, 'message')}"
    if branches > len(new):
        text += f" in {branches} branches"
    text = f"{clean_line(found.path.name)} ({', '.join(found.programs)}): {text} taken in"
    if len(new) < len(keys):
        text += f", {len(keys) - len(new)} here already"
    return text + (f"; left out: {_kinds(found.left_out)}" if found.left_out else "") + "."


def _kinds(left_out: Counter[str]) -> str:
    return ", ".join(_count(number, kind) for kind, number in sorted(left_out.items()))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun if number == 1 else _PLURALS.get(noun, noun + 's')}"
