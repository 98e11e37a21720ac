"""What the store gives out: chats and their messages, as immutable values. Times are Unix seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ..engine.counters import ReplyStats


class Role(str, Enum):
    USER = "user"
    ASSISTANT = "assistant"


class Status(str, Enum):
    """How far a message got."""

    RUNNING = "running"  # a live program is writing it
    DONE = "done"
    STOPPED = "stopped"  # the person stopped it
    ERROR = "error"
    INTERRUPTED = "interrupted"  # the program that wrote it ended before the reply did


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One chat. `leaf`: the last message of the branch that is shown, None in an empty chat."""

    id: int
    title: str
    created: float
    updated: float
    draft: str
    system: str
    model: str
    leaf: int | None
    deleted_at: float | None
    messages: int  # in all branches
    pinned: bool = False  # kept at the top of the list
    options: Mapping[str, object] = field(default_factory=dict)  # what this chat has of its own, as plain JSON values


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One message. `parent_id`: the message before it, None for a first one."""

    id: int
    session_id: int
    parent_id: int | None
    role: Role
    text: str
    thinking: str
    status: Status
    note: str  # why a reply ended in an error
    model: str
    params: dict[str, object] | None  # sampling parameters of a reply
    stats: dict[str, object] | None  # of a finished reply; see reply_stats
    owner_pid: int | None  # the program that writes a running reply
    created: float
    updated: float
    sent: bool = True  # false: left out of what the model gets

    @property
    def reply_stats(self) -> ReplyStats | None:
        """The reply's numbers, None where none were stored."""
        return None if self.stats is None else ReplyStats.from_dict(self.stats)
