"""What the model gets of a branch: which of its messages, and how they become the engine's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .engine.events import Message
from .sessions.rows import Role

_BETWEEN = "\n\n"  # messages of one side that follow each other


class Said(Protocol):
    """A message of a branch, stored or shown. `sent` false: it was left out by the person."""

    @property
    def role(self) -> Role: ...
    @property
    def text(self) -> str: ...
    @property
    def sent(self) -> bool: ...


def in_view(path: Sequence[Said]) -> list[bool]:
    """For each message of a branch whether the model gets it: a reply goes only with the message it answers.

    Chat templates refuse a conversation that begins with a reply, and one to a message that is missing misleads.
    """
    found: list[bool] = []
    answered = True
    for one in path:
        if one.role is Role.USER:
            answered = one.sent
        found.append(one.sent and answered)
    return found


def conversation(system: str, path: Sequence[Said]) -> list[Message]:
    """No thinking, no empty replies, nothing that is not sent; turns of both sides alternate.

    Two messages of a person can follow each other when the reply between them came to nothing; they are joined,
    because many chat templates refuse such a pair.
    """
    found = [Message("system", system)] if system else []
    for one, sent in zip(path, in_view(path), strict=True):
        if not sent or not one.text:
            continue
        if found and found[-1].role == one.role.value:
            found[-1] = Message(one.role.value, found[-1].text + _BETWEEN + one.text)
        else:
            found.append(Message(one.role.value, one.text))
    return found
