"""The chat that is shown, and the reply that runs: state without widgets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..engine.counters import ReplyStats
from ..engine.events import FinishReason, Message
from ..sessions.rows import MessageRow, Role, SessionInfo, Status
from ..sessions.store import Ref, Store, title_from

STATUS_OF = {
    FinishReason.STOP: Status.DONE,
    FinishReason.LENGTH: Status.DONE,
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
    thinking_seconds: float | None = None  # known only for replies of this run of the program
    live: bool = False  # this program's engine is writing it
    status: Status = Status.DONE
    note: str = ""
    model: str = ""
    stats: ReplyStats | None = None
    ref: Ref | None = None  # its id in the store, or the write that makes it

    @classmethod
    def of(cls, row: MessageRow) -> Turn:
        """The turn of a stored message."""
        return cls(
            row.role,
            row.text,
            row.created,
            thinking=row.thinking,
            status=row.status,
            note=row.note,
            model=row.model,
            stats=row.reply_stats,
            ref=row.id,
        )


@dataclass(slots=True, eq=False)
class Chat:
    """One chat. `session` None: new, and not in the store before its first message."""

    session: int | None = None
    title: str = ""
    system: str = ""
    options: dict[str, object] = field(default_factory=dict)  # of its own; see ui/options.py
    turns: list[Turn] = field(default_factory=list)
    _storing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def of(cls, info: SessionInfo, rows: Sequence[MessageRow]) -> Chat:
        """A stored chat with the messages of its shown branch."""
        return cls(info.id, info.title, info.system, dict(info.options), [Turn.of(row) for row in rows])

    @property
    def shown_title(self) -> str:
        """The title, or what stands for it in a new chat."""
        return self.title or "New chat"

    async def stored(self, store: Store, model: str = "") -> int:
        """The chat's id in the store, which makes one for a new chat. Raises UserError."""
        async with self._storing:
            if self.session is None:
                new = store.create_session(title=self.title, system=self.system, model=model)
                self.session = await asyncio.wrap_future(new)
                if self.options:
                    await asyncio.wrap_future(store.set_options(self.session, self.options))
            return self.session

    def add_user(self, text: str, created: float, message: int) -> Turn:
        """A person's stored turn; it gives a chat without a title its title, as the store does."""
        turn = Turn(Role.USER, text, created, ref=message)
        self.turns.append(turn)
        self.title = self.title or title_from(text)
        return turn

    def messages(self) -> list[Message]:
        """What the engine gets: no thinking, no empty replies, and turns of both sides alternate.

        Two turns of a person can follow each other when the reply between them came to nothing; they are
        joined, because many chat templates refuse such a pair.
        """
        result: list[Message] = []
        if self.system:
            result.append(Message("system", self.system))
        for turn in self.turns:
            if not turn.text:
                continue
            if result and result[-1].role == turn.role.value:
                result[-1] = Message(turn.role.value, result[-1].text + "\n\n" + turn.text)
            else:
                result.append(Message(turn.role.value, turn.text))
        return result

    def last_reply(self) -> Turn | None:
        """The newest reply that has text."""
        return next((t for t in reversed(self.turns) if t.role is Role.ASSISTANT and t.text), None)


@dataclass(slots=True, eq=False)
class RunningReply:
    """The reply the engine works on. `started` is on the monotonic clock."""

    id: int  # the engine's
    chat: Chat
    user: Turn
    turn: Turn
    message: Ref
    started: float
    saved: float  # when the text was last given to the store
    changed: bool = False  # since then
    stopping: bool = False
    prompt: tuple[int, int] | None = None
