"""Branches: a chat's messages as a tree, read-only."""

from __future__ import annotations

from collections.abc import Iterable

from .rows import MessageRow


class Tree:
    """The messages of one chat. Children are in the order in which they were written."""

    def __init__(self, messages: Iterable[MessageRow]) -> None:
        self._by_id = {m.id: m for m in sorted(messages, key=lambda m: m.id)}
        self._children: dict[int | None, list[MessageRow]] = {}
        for message in self._by_id.values():
            self._children.setdefault(message.parent_id, []).append(message)

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, message: int) -> bool:
        return message in self._by_id

    def path(self, leaf: int | None) -> list[MessageRow]:
        """From the first message to `leaf`; empty for None. Raises KeyError for an id of no message."""
        found: list[MessageRow] = []
        while leaf is not None:
            message = self._by_id[leaf]
            found.append(message)
            leaf = message.parent_id
        return found[::-1]

    def children(self, parent: int | None) -> list[MessageRow]:
        """The messages that follow `parent` directly; None: the first messages of all branches."""
        return list(self._children.get(parent, ()))

    def siblings(self, message: int) -> list[MessageRow]:
        """The messages at the same place, `message` among them. Raises KeyError for an id of no message."""
        return self.children(self._by_id[message].parent_id)

    def newest_leaf(self, message: int) -> int:
        """The leaf that is reached from `message` by following the newest child."""
        while following := self._children.get(message):
            message = following[-1].id
        return message

    def leaves(self) -> list[int]:
        """The last message of each branch, oldest first."""
        return [i for i in self._by_id if i not in self._children]
