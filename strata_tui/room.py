"""Room in the context: what a chat takes of it, and how much of its beginning must go so that the rest fits."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from .conversation import Said, conversation, in_view
from .engine.events import Measured, Message
from .errors import UserError
from .sessions.rows import Role

REPLY = 1024  # tokens that a reply should find free, at most a quarter of the context

S = TypeVar("S", bound=Said)


class Measure(Protocol):
    """Engine.measure, and its answer waited for."""

    def __call__(self, messages: Sequence[Message], texts: Sequence[str] = ()) -> Awaitable[Measured]: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be sent: a branch, and the person's next message, or none while its last reply is to go on."""

    system: str
    path: tuple[Said, ...]
    pending: str = ""

    def messages(self, path: Sequence[Said]) -> list[Message]:
        """The conversation with these messages of the branch in place of all."""
        return conversation(self.system, [*path, *([_Pending(self.pending)] if self.pending else [])])

    @property
    def fixed(self) -> int:
        """Index in `path` of the first message that must stay: what is to be gone on with, and what that answers."""
        if self.pending:
            return len(self.path)
        return max((n for n, one in enumerate(self.path) if one.role is Role.USER), default=len(self.path))


@dataclass(frozen=True, slots=True)
class _Pending:
    text: str
    role: Role = Role.USER
    sent: bool = True


@dataclass(frozen=True, slots=True)
class Room:
    """A chat against its context, in tokens. `first`: index of the oldest message with which all from there on fits;
    the branch's length where only the pending message does, None where not even that.
    """

    asked: Asked
    context: int
    reply: int  # what a reply should find free
    tokens: int  # of all that would be sent now
    texts: tuple[int, ...]  # of each message of the branch, without markup
    first: int | None
    fitting: int  # tokens of what fits

    @property
    def fits(self) -> bool:
        """Whether nothing has to go."""
        return self.tokens + self.reply <= self.context

    @property
    def oldest(self) -> frozenset[int]:
        """Indices of the messages that must go, the oldest, of those that are sent."""
        view = in_view(self.asked.path)
        return frozenset(n for n in range(self.first or 0) if view[n])

    @property
    def chosen(self) -> frozenset[int]:
        """Those, and the messages that are left out already."""
        view = in_view(self.asked.path)
        return self.oldest | {n for n, seen in enumerate(view) if not seen}


def reply_room(context: int, longest: int | None) -> int:
    """Tokens that a reply should find free. `longest`: its limit, None for none."""
    most = min(REPLY, context // 4)
    return max(1, most if longest is None else min(most, longest))


async def look(asked: Asked, context: int, longest: int | None, measure: Measure) -> Room:
    """Measures a chat, and finds what fits. Raises UserError when it cannot be measured."""
    reply = reply_room(context, longest)
    path = asked.path
    whole = await _measured(measure, asked.messages(path), [one.text for one in path])
    room = Room(asked, context, reply, whole.tokens, whole.texts, 0, whole.tokens)
    if room.fits:
        return room
    # One bisection over the places where an exchange begins; each look is the whole prompt, so markup counts.
    starts = [n for n, one in enumerate(path) if one.role is Role.USER and 0 < n <= asked.fixed]
    if asked.pending:
        starts.append(len(path))
    sizes: dict[int, int] = {}
    low, high = 0, len(starts)
    while low < high:
        middle = (low + high) // 2
        start = starts[middle]
        sizes[start] = (await _measured(measure, asked.messages(path[start:]))).tokens
        if sizes[start] + reply <= context:
            high = middle
        else:
            low = middle + 1
    if low == len(starts):
        return replace(room, first=None)
    return replace(room, first=starts[low], fitting=sizes[starts[low]])


async def tokens_without(asked: Asked, out: frozenset[int], measure: Measure) -> int:
    """Tokens of what is sent when exactly the messages with these indices are left out. Raises UserError."""
    return (await _measured(measure, asked.messages(left_out(asked.path, out)))).tokens


def left_out(path: Sequence[Said], out: frozenset[int]) -> list[Said]:
    """The branch with exactly these messages left out."""
    return [_Marked(one.role, one.text, n not in out) for n, one in enumerate(path)]


def toggled(path: Sequence[Said], out: frozenset[int], index: int) -> frozenset[int]:
    """The messages left out after a change of one: a reply goes, and comes back, with the message it answers."""
    message = next((n for n in range(index, -1, -1) if path[n].role is Role.USER), index)
    replies = _replies(path, message)
    if index in out:
        back = {index, message} if index != message else {message, *replies}
        return out - back
    return out | ({index} if index != message else {message, *replies})


def _replies(path: Sequence[Said], message: int) -> list[int]:
    """Indices of the replies that follow a message."""
    end = message + 1
    while end < len(path) and path[end].role is not Role.USER:
        end += 1
    return list(range(message + 1, end))


@dataclass(frozen=True, slots=True)
class _Marked:
    role: Role
    text: str
    sent: bool


async def _measured(measure: Measure, messages: Sequence[Message], texts: Sequence[str] = ()) -> Measured:
    answer = await measure(messages, texts)
    if answer.problem:
        raise UserError(answer.problem)
    return answer


def spans(indices: Sequence[int]) -> str:
    """Numbers of messages, from 1, in words: `1 to 4, 7`."""
    parts: list[list[int]] = []
    for index in sorted(indices):
        if parts and index == parts[-1][-1] + 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    return ", ".join(
        f"{p[0] + 1}" if len(p) == 1 else f"{p[0] + 1} {'and' if len(p) == 2 else 'to'} {p[-1] + 1}" for p in parts
    )
