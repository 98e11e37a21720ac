"""Making room in the context: what the shown chat takes, the ways to make it fit, and doing one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.events import Measured, Message
from ..errors import UserError
from ..room import Asked, Room, look
from .chat import Chat, Turn
from .room_text import FORK, LARGER, LEAVE_OUT, Choice, choices, situation_text
from .screens.leaving_out import LeavingOutScreen
from .screens.room import RoomScreen

if TYPE_CHECKING:
    from ..catalog.larger import Larger
    from .screens.chat import ChatScreen


class MakingRoom:
    """The chat screen's dealings with the context's size. Methods may raise UserError."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self._waiting: dict[int, asyncio.Future[Measured]] = {}

    # Measuring

    def answered(self, event: Measured) -> None:
        """The engine has measured something."""
        waiting = self._waiting.pop(event.id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(event)

    async def measure(self, messages: Sequence[Message], texts: Sequence[str] = ()) -> Measured:
        """Engine.measure with the shown chat's thinking, and its answer."""
        thinking = self._screen.options.sampling(self._screen.chat).thinking
        question = self._screen.engine.measure(messages, texts=texts, thinking=thinking)
        answer: asyncio.Future[Measured] = asyncio.get_running_loop().create_future()
        self._waiting[question] = answer
        self._screen.pace()
        return await answer

    @property
    def waiting(self) -> bool:
        """Whether the engine is measuring."""
        return bool(self._waiting)

    # The ways

    def ask(self) -> None:
        """Opens the page with the ways to make room."""
        screen = self._screen
        screen.turns.free()
        model = screen.model
        assert model is not None
        chat = screen.chat
        path = screen.turns.above.path()
        asked = Asked(chat.system, tuple(path), screen.prompt.message.strip())
        page = RoomScreen()

        async def fill() -> None:
            try:
                room = await look(asked, model.context, screen.options.sampling(chat).max_tokens, self.measure)
                found = await asyncio.to_thread(self._larger, Path(model.path), model.context, room)
                page.fill(room.fits, situation_text(room), choices(room, found, screen.snapshot.memory))
            except UserError as error:
                page.tell(str(error), error=True)
            else:
                page.found = room, found.context

        def chosen(choice: Choice | None) -> None:
            if choice is not None and page.found is not None:
                screen.run_worker(screen.commands.told(self._do(choice.id, chat, path, *page.found)), group="room")

        screen.app.push_screen(page, chosen)
        screen.run_worker(fill(), group="room-look", exclusive=True)

    def _larger(self, file: Path, now: int, room: Room) -> Larger:
        """On a thread of its own: it reads the file's header."""
        from ..catalog.estimate import machine
        from ..catalog.larger import larger
        from ..engine.gguf_info import read_info

        options = self._screen.engine_options
        there = machine(options, self._screen.held())
        return larger(read_info(file), there, options, now, room.tokens + room.reply)

    async def _do(self, way: str, chat: Chat, path: list[Turn], room: Room, context: int) -> None:
        screen = self._screen
        screen.turns.free()
        if chat is not screen.chat:
            raise UserError("Another chat is shown now: /room there makes room in it.")
        if way == LARGER:
            screen.load(None, context)
            screen.flash.say(f"Opening the model with {context} tokens; --ctx {context} has it so from the start.")
        elif way == FORK:
            assert room.first is not None
            await screen.commands.chats.fork(path[-1], first=path[room.first])
            screen.flash.say(f"A new chat with what fits; the other one is left as it is. {self._next()}")
        elif way == LEAVE_OUT:
            self._choose(chat, path, room)

    def _choose(self, chat: Chat, path: list[Turn], room: Room) -> None:
        async def leave(out: frozenset[int] | None) -> None:
            if out is not None:
                await self._screen.commands.told(self._leave(chat, path, out))

        self._screen.app.push_screen(LeavingOutScreen(room, self.measure), leave)

    async def _leave(self, chat: Chat, path: list[Turn], out: frozenset[int]) -> None:
        await self.set_sent(chat, {turn: n not in out for n, turn in enumerate(path)})
        if not out:
            self._screen.flash.say(f"All messages are sent. {self._next()}")
        else:
            some = "1 message is" if len(out) == 1 else f"{len(out)} messages are"
            key = self._screen.key_of("leave_out_here", "/room")
            self._screen.flash.say(
                f"{some} not sent from now on; {key} on one takes it back. {self._next()}", stay=True
            )

    def _next(self) -> str:
        """What the person may do now."""
        if self._screen.prompt.message.strip():
            return "Enter sends your message."
        return "/continue goes on with the reply."

    # Leaving out

    async def set_sent(self, chat: Chat, sent: Mapping[Turn, bool]) -> None:
        """Which messages the model gets from now on; kept with the chat."""
        changes = {turn: whether for turn, whether in sent.items() if turn.sent is not whether}
        keys = {turn: turn.key for turn in changes}
        known = {key: changes[turn] for turn, key in keys.items() if key is not None}
        if len(known) < len(changes) or (changes and chat.session is None):
            raise UserError("This message is not stored yet: try again in a moment.")
        if changes and chat.session is not None:
            await asyncio.wrap_future(self._screen.store.set_sent(chat.session, known))
        for turn, whether in changes.items():
            turn.sent = whether
        self._screen.transcript.mark_heads()
