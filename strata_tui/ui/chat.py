"""The chat that is shown, its branches, and the reply that runs: state without widgets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..conversation import conversation, in_view
from ..engine.counters import ReplyStats
from ..engine.events import FinishReason, Message, PromptProgress, Sampling
from ..sessions.rows import MessageRow, Role, SessionInfo, Status
from ..sessions.store import Ref, Store, title_from

STATUS_OF = {
    FinishReason.STOP: Status.DONE,
    FinishReason.LENGTH: Status.DONE,
    FinishReason.FULL: Status.DONE,
    FinishReason.CANCELLED: Status.STOPPED,
    FinishReason.ERROR: Status.ERROR,
    FinishReason.TOO_LONG: Status.ERROR,
}


@dataclass(slots=True, eq=False)
class Turn:
    """One message as it is shown. A running reply's turn grows in place."""

    role: Role
    text: str
    created: float  # Unix seconds
    thinking: str = ""
    thinking_seconds: float | None = None
    thinking_tokens: int = 0
    live: bool = False  # this program's engine is writing it
    status: Status = Status.DONE
    note: str = ""
    model: str = ""
    stats: ReplyStats | None = None
    ref: Ref | None = None  # its id in the store, or the write that makes it
    sent: bool = True  # false: the person has left it out of what the model gets
    # Not in the repr: a crash's traceback prints locals, and would go through all ways in the tree.
    above: Turn | None = field(default=None, repr=False)  # the message before it, or the chat's root
    below: list[Turn] = field(default_factory=list, repr=False)  # the messages that follow it, one a branch
    shown_below: Turn | None = field(default=None, repr=False)  # the one of these that was shown last

    @classmethod
    def of(cls, row: MessageRow) -> Turn:
        """The turn of a stored message."""
        stats = row.reply_stats
        return cls(
            row.role,
            row.text,
            row.created,
            thinking=row.thinking,
            thinking_seconds=stats.thinking_seconds if stats else None,
            thinking_tokens=stats.thinking_tokens if stats else 0,
            status=row.status,
            note=row.note,
            model=row.model,
            stats=stats,
            ref=row.id,
            sent=row.sent,
        )

    @property
    def siblings(self) -> list[Turn]:
        """The messages at the same place in all branches, itself among them."""
        return self.above.below if self.above is not None else [self]

    @property
    def key(self) -> int | None:
        """Its id in the store, once it is known."""
        if self.ref is None or isinstance(self.ref, int):
            return self.ref
        return self.ref.result() if self.ref.done() and self.ref.exception() is None else None

    @property
    def in_view(self) -> bool:
        """Whether the model gets it."""
        exchange = [self]  # from the message that it answers on
        while exchange[-1].role is not Role.USER and (above := exchange[-1].above) and above.above is not None:
            exchange.append(above)
        return in_view(exchange[::-1])[-1]

    def path(self) -> list[Turn]:
        """The messages from the chat's first one to this one; of a root, none."""
        found: list[Turn] = []
        turn = self
        while turn.above is not None:
            found.append(turn)
            turn = turn.above
        return found[::-1]


def _root() -> Turn:
    """Stands above the first messages of all branches and is no message itself."""
    return Turn(Role.USER, "", 0.0)


@dataclass(slots=True, eq=False)
class Chat:
    """One chat. `session` None: new, and not in the store before its first message."""

    session: int | None = None
    title: str = ""
    system: str = ""
    options: dict[str, object] = field(default_factory=dict)  # of its own; see ui/options.py
    turns: list[Turn] = field(default_factory=list, repr=False)  # the branch that is shown
    root: Turn = field(default_factory=_root, repr=False)
    typed: str = ""  # what was in the prompt when another chat was shown in its place
    _storing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def of(cls, info: SessionInfo, rows: Sequence[MessageRow]) -> Chat:
        """A stored chat with the messages of all its branches."""
        chat = cls(info.id, info.title, info.system, dict(info.options))
        turns = {row.id: Turn.of(row) for row in rows}
        for row in sorted(rows, key=lambda row: row.id):
            _hang(turns[row.id], chat.root if row.parent_id is None else turns[row.parent_id])
        if info.leaf is not None:
            chat.show(turns[info.leaf])
        return chat

    @property
    def shown_title(self) -> str:
        """The title, or what stands for it in a new chat."""
        return self.title or "New chat"

    @property
    def unused(self) -> bool:
        """Whether nothing was said in it and nothing set."""
        return not (self.root.below or self.title or self.options)

    @property
    def end(self) -> Turn:
        """The last message of the shown branch; of an empty one, the root."""
        return self.turns[-1] if self.turns else self.root

    async def stored(self, store: Store, model: str = "") -> int:
        """The chat's id in the store, which makes one for a new chat. Raises UserError."""
        async with self._storing:
            if self.session is None:
                new = store.create_session(title=self.title, system=self.system, model=model)
                self.session = await asyncio.wrap_future(new)
                if self.options:
                    await asyncio.wrap_future(store.set_options(self.session, self.options))
            return self.session

    # Branches

    def add(self, turn: Turn, above: Turn) -> None:
        """Puts a message below another, or below the root, and shows the branch that it ends."""
        _hang(turn, above)
        self.show(turn)

    def add_user(self, text: str, created: float, message: int, above: Turn) -> Turn:
        """A person's stored turn; it gives a chat without a title its title, as the store does."""
        turn = Turn(Role.USER, text, created, ref=message)
        self.add(turn, above)
        self.title = self.title or title_from(text)
        return turn

    def all_turns(self) -> Iterator[Turn]:
        """The messages of all branches; those above come before those below."""
        waiting = [*self.root.below]
        while waiting:
            turn = waiting.pop()
            yield turn
            waiting += turn.below

    def show(self, end: Turn) -> None:
        """Shows the branch that ends at a message; at the root: none of it."""
        self.turns[:] = path = end.path()
        for turn in path:
            if turn.above is not None:
                turn.above.shown_below = turn

    def show_through(self, turn: Turn) -> None:
        """Shows a branch that goes through a message: from there on the one shown last, else the newest."""
        while turn.below:
            turn = turn.shown_below or turn.below[-1]
        self.show(turn)

    # What the engine gets

    def messages(self, end: Turn | None = None) -> list[Message]:
        """What of the branch up to `end` (None: of the shown one) is sent; see conversation.py."""
        return conversation(self.system, self.turns if end is None else end.path())

    def last_reply(self) -> Turn | None:
        """The newest reply that has text."""
        return next((t for t in reversed(self.turns) if t.role is Role.ASSISTANT and t.text), None)

    def last_message(self) -> Turn | None:
        """The newest message of the person."""
        return next((t for t in reversed(self.turns) if t.role is Role.USER), None)


def _hang(turn: Turn, above: Turn) -> None:
    turn.above = above
    above.below.append(turn)


@dataclass(frozen=True, slots=True)
class Before:
    """What a reply was before it was gone on with."""

    status: Status
    note: str
    stats: ReplyStats | None


@dataclass(slots=True, eq=False)
class RunningReply:
    """The reply the engine works on. `started` is on the monotonic clock."""

    id: int  # the engine's
    chat: Chat
    turn: Turn
    message: Ref
    sampling: Sampling
    started: float
    saved: float  # when the text was last given to the store
    shown: Turn  # the end of the branch that was shown before
    sent: Turn | None = None  # the person's message that was sent with it
    before: Before | None = None  # of a reply that is gone on with
    first: float | None = None  # when its first text came
    changed: bool = False  # since it was saved
    stopping: bool = False
    prompt: PromptProgress | None = None
