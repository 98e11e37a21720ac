"""Messages that wait until the reply that runs has ended, or the model has been loaded."""

from __future__ import annotations

from dataclasses import dataclass

from .chat import Chat, Turn


@dataclass(slots=True, eq=False)
class Queued:
    """A message and the one it follows."""

    chat: Chat
    text: str
    above: Turn


class Queue:
    """In the order in which they were sent."""

    def __init__(self) -> None:
        self._waiting: list[Queued] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, message: Queued) -> None:
        """Puts a message at the end."""
        self._waiting.append(message)

    def next(self) -> Queued:
        """Takes the first one out."""
        return self._waiting.pop(0)

    def of(self, chat: Chat) -> list[Queued]:
        """Those of one chat."""
        return [message for message in self._waiting if message.chat is chat]

    def chats(self) -> list[Chat]:
        """Those that messages wait for."""
        return [message.chat for message in self._waiting]

    def chat(self, session: int) -> Chat | None:
        """The chat with this id that a message waits for."""
        return next((m.chat for m in self._waiting if m.chat.session == session), None)

    def take_back(self, chat: Chat) -> Queued | None:
        """Takes the last message of a chat out again."""
        own = self.of(chat)
        if own:
            self._waiting.remove(own[-1])
        return own[-1] if own else None

    def take_all(self, chat: Chat) -> list[Queued]:
        """Takes all messages of a chat out."""
        own = self.of(chat)
        self._waiting = [message for message in self._waiting if message.chat is not chat]
        return own

    def follow(self, chat: Chat, above: Turn, reply: Turn) -> None:
        """Messages that were to follow `above` now follow the reply that came in between."""
        for message in self.of(chat):
            if message.above is above:
                message.above = reply
