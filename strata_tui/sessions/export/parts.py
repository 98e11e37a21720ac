"""A tree as a page: the shown branch, then of each other branch what has not been on the page yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...conversation import in_view
from ..rows import MessageRow, Role, SessionInfo, Status
from ..tree import Tree


@dataclass(frozen=True, slots=True)
class Entry:
    """A message on the page. `number` counts all of them in the order of writing, from 1."""

    message: MessageRow
    number: int
    version: int  # of `versions` at this place of the tree, from 1
    versions: int
    sent: bool  # false: left out of what the model gets

    @property
    def heading(self) -> str:
        """Who, and how it ended if it did not simply end."""
        title = "User" if self.message.role is Role.USER else "Assistant"
        marks = [] if self.message.status is Status.DONE else [self.message.status.value]
        if not self.sent:
            marks.append("not sent")
        return f"{title} ({', '.join(marks)})" if marks else title


@dataclass(frozen=True, slots=True)
class Part:
    """Messages that follow each other. `after`: the number of the one before the first, None at the start."""

    after: int | None
    entries: tuple[Entry, ...]


def parts_of(session: SessionInfo, messages: Sequence[MessageRow]) -> list[Part]:
    """The parts of these messages, the branch that is shown first. Never empty."""
    tree = Tree(messages)
    numbers = {m.id: n for n, m in enumerate(sorted(messages, key=lambda m: m.id), 1)}
    leaves = tree.leaves()
    shown = session.leaf if session.leaf in numbers else None
    seen: set[int] = set()
    found: list[Part] = []
    for leaf in [shown, *leaves]:
        path = tree.path(leaf)
        new = [m for m in path if m.id not in seen]
        if not new and found:
            continue
        sent = dict(zip((m.id for m in path), in_view(path), strict=True))
        entries = []
        for message in new:
            siblings = [m.id for m in tree.siblings(message.id)]
            place = siblings.index(message.id) + 1
            entries.append(Entry(message, numbers[message.id], place, len(siblings), sent[message.id]))
        above = new[0].parent_id if new else None
        found.append(Part(None if above is None else numbers[above], tuple(entries)))
        seen.update(m.id for m in new)
    return found if found[0].entries or len(found) == 1 else found[1:]
