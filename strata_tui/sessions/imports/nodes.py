"""From the nodes of some program's tree of messages to the messages of a chat here."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..portable import PortableMessage
from ..rows import Role

MILLISECONDS_FROM = 1e11  # a time from here on is in milliseconds: in seconds it would be the year 5138


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it was read. `message` None: it is left out, and its children move up to its parent.

    `thinking` of a node that is left out belongs to the next reply below it.
    """

    key: Hashable
    parent: Hashable | None  # one that no node has means none
    message: PortableMessage | None
    thinking: str = ""
    created: float | None = None


def build(nodes: Sequence[Node], leaf: Hashable | None) -> tuple[tuple[PortableMessage, ...], int | None]:
    """The messages, parents first and otherwise by time, and the place of the shown branch's last one.

    Replies that follow each other without a branch between them (before and after a tool was used) become
    one. Without a known `leaf`, the newest message's branch is shown.
    """
    messages: list[PortableMessage] = []
    above: dict[Hashable, tuple[int | None, str]] = {}  # key: the message at or above it, thinking still to be told
    for node in _ordered(nodes):
        place, thinking = above.get(node.parent, (None, ""))
        if node.message is None:
            above[node.key] = place, _joined(thinking, node.thinking)
            continue
        message = replace(node.message, parent=place)
        if message.role is Role.ASSISTANT:
            message = replace(message, thinking=_joined(thinking, message.thinking))
        above[node.key] = len(messages), ""
        messages.append(message)
    if not messages:
        return (), None
    shown = above[leaf][0] if leaf in above else len(messages) - 1
    return _merged(messages, shown)


def _ordered(nodes: Sequence[Node]) -> list[Node]:
    """Parents before children, else by time; a node without a time has its parent's. A circle is cut open."""
    known = {node.key: node for node in nodes}
    children: dict[Hashable | None, list[int]] = {}
    for number, node in enumerate(nodes):
        children.setdefault(node.parent if node.parent in known else None, []).append(number)
    found: list[Node] = []
    seen: set[int] = set()
    waiting = [(nodes[n].created or -math.inf, n) for n in children.get(None, ())]
    for start in range(-1, len(nodes)):
        if start >= 0 and start not in seen:  # only in a circle is a node not reached from a first one
            waiting.append((-math.inf, start))
        heapq.heapify(waiting)
        while waiting:
            then, number = heapq.heappop(waiting)
            if number in seen:
                continue
            seen.add(number)
            found.append(nodes[number])
            for child in children.get(nodes[number].key, ()):
                heapq.heappush(waiting, (max(then, nodes[child].created or then), child))
    return found


def _merged(messages: list[PortableMessage], leaf: int | None) -> tuple[tuple[PortableMessage, ...], int | None]:
    children = Counter(m.parent for m in messages)
    result: list[PortableMessage] = []
    places: list[int] = []  # where each message went
    for message in messages:
        parent = message.parent
        above = None if parent is None else result[places[parent]]
        if above is not None and children[parent] == 1 and message.role is above.role is Role.ASSISTANT:
            assert parent is not None
            place = places[parent]
            result[place] = replace(
                message,
                parent=above.parent,
                text=_joined(above.text, message.text),
                thinking=_joined(above.thinking, message.thinking),
                created=above.created,
                model=message.model or above.model,
                stats=message.stats or above.stats,
            )
        else:
            place = len(result)
            result.append(replace(message, parent=None if parent is None else places[parent]))
        places.append(place)
    return tuple(result), None if leaf is None else places[leaf]


def _joined(first: str, second: str) -> str:
    return "\n\n".join(filter(None, (first, second)))


# Values of which nothing is known: files may hold anything


def text_of(value: object) -> str:
    """A text, or nothing."""
    return value if isinstance(value, str) else ""


def mapping_of(value: object) -> Mapping[str, Any]:
    """An object, or an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """A list, or an empty one."""
    return value if isinstance(value, list) else []


def key_of(value: object) -> Hashable:
    """What names a node; one that has no name of a plain kind gets one of its own."""
    return value if isinstance(value, str | int) else object()


def seconds_of(value: object) -> float | None:
    """A Unix time in seconds from one in seconds or milliseconds; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        return None
    return value / 1000 if value >= MILLISECONDS_FROM else float(value)
