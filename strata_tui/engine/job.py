"""What a worker is asked for, and what it does for a reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .events import Event, Message, Sampling


@dataclass(frozen=True, slots=True)
class Job:
    """A reply that was asked for."""

    reply_id: int
    messages: tuple[Message, ...]
    sampling: Sampling
    go_on: bool = False  # the last message is the reply itself, unfinished
    chat: str = ""  # names the chat whose KV snapshots serve it; "": none do


@dataclass(frozen=True, slots=True)
class Measure:
    """The question how many tokens a conversation takes, and each of some texts."""

    id: int
    messages: tuple[Message, ...]
    texts: tuple[str, ...]
    thinking: str | None


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a running reply needs from its worker."""

    emit: Callable[[Event], None]
    cancelled: Callable[[], bool]
    between_rounds: Callable[[], None]  # applies changed modes
    decoding: Callable[[], None]  # the prompt is read
