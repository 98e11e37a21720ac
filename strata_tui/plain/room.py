"""Making room in the context, as numbered choices."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..conversation import in_view
from ..engine.events import Measured, Message
from ..errors import UserError
from ..parameters import checked
from ..room import Asked, Room, look, spans, toggled, tokens_without
from ..sessions.rows import Role
from ..ui.room_text import FORK, LARGER, LEAVE_OUT, beginning, choices, situation_text
from .talk import Talk

if TYPE_CHECKING:
    from ..catalog.larger import Larger
    from ..sessions.rows import SessionInfo

_SPAN = re.compile(r"(\d+)(?:-(\d+))?")


class RoomCommands:
    """A part of PlainCommands."""

    _talk: Talk

    def open(self, info: SessionInfo) -> None:
        raise NotImplementedError

    def do_make_room(self, line: str) -> None:
        """`/room` lists the choices, `/room 2` does one, `/room 3 1-4` leaves out exactly these messages."""
        room, found = self._look()
        ways = choices(room, found, self._talk.engine.snapshot().memory)
        say = self._talk.lines.say
        number, _, which = line.partition(" ")
        if not number:
            say(situation_text(room))
            for n, way in enumerate(ways, 1):
                say(f"  {n}: {way.head}. {way.problem or way.about}")
            self._list(room)
            say("/room and a number does it; /room 3 and messages, such as 1-4,7 or none, leaves out exactly these.")
            return
        if not (number.isascii() and number.isdigit() and 1 <= int(number) <= len(ways)):
            raise UserError(f"{number} is none of the choices: /room lists them.")
        way = ways[int(number) - 1]
        if way.problem:
            raise UserError(way.problem)
        if which and way.id != LEAVE_OUT:
            raise UserError("Messages can be named with /room 3 only.")
        if way.id == LARGER:
            self._larger(found)
        elif way.id == FORK:
            self._fork(room)
        else:
            self._leave_out(room, which.strip())
        self._talk.send_unsent()

    def _look(self) -> tuple[Room, Larger]:
        talk = self._talk
        if talk.model is None:
            raise UserError("No model is loaded: /model lists those there are, /model NAME loads one.")
        asked = Asked(talk.system, tuple(talk.rows()), talk.unsent)
        room = asyncio.run(look(asked, talk.model.context, self._sampling_limit(), self._measure))
        return room, self._next_size(room)

    def _sampling_limit(self) -> int | None:
        return self._talk.layers.sampling(self._talk.model, checked(self._talk.options)).max_tokens

    async def _measure(self, messages: Sequence[Message], texts: Sequence[str] = ()) -> Measured:
        return self._talk.measure(messages, texts)

    def _next_size(self, room: Room) -> Larger:
        from ..catalog.estimate import machine
        from ..catalog.larger import larger
        from ..engine.gguf_info import read_info

        talk = self._talk
        assert talk.model is not None
        there = machine(talk.engine_options, talk.held())
        info = read_info(Path(talk.model.path))
        return larger(info, there, talk.engine_options, talk.model.context, room.tokens + room.reply)

    def _list(self, room: Room) -> None:
        view = in_view(room.asked.path)
        for n, one in enumerate(room.asked.path):
            who = "You" if one.role is Role.USER else "Reply"
            left = "" if view[n] else ", not sent"
            self._talk.lines.say(f"  Message {n + 1}, {room.texts[n]} tokens{left}. {who}: {beginning(one.text)}")

    # The ways

    def _larger(self, found: Larger) -> None:
        talk = self._talk
        assert talk.model is not None
        talk.load(Path(talk.model.path), found.context)
        if talk.model is not None:
            talk.lines.say(f"The context holds {talk.model.context} tokens; --ctx has it so from the start.")

    def _fork(self, room: Room) -> None:
        talk = self._talk
        assert talk.session is not None and room.first is not None
        rows, unsent = talk.rows(), talk.unsent
        copy = talk.store.fork(talk.session, rows[-1].id, rows[room.first].id).result()
        self.open(talk.store.session(copy))
        talk.unsent = unsent

    def _leave_out(self, room: Room, which: str) -> None:
        talk, asked = self._talk, room.asked
        out = room.chosen if not which else _named(asked, which)
        if max(out, default=-1) >= asked.fixed:
            raise UserError("The reply that is to go on needs its message: leave out earlier ones.")
        tokens = asyncio.run(tokens_without(asked, out, self._measure))
        if tokens + 1 > room.context:
            raise UserError(f"{tokens + 1 - room.context} tokens too many: leave out more.")
        assert talk.session is not None
        talk.store.set_sent(talk.session, {row.id: n not in out for n, row in enumerate(talk.rows())}).result()
        left = f"Messages {spans(sorted(out))} are not sent from now on" if out else "All messages are sent"
        talk.lines.say(f"{left}: {tokens} of {room.context} tokens. /room 3 none takes all back.")


def _named(asked: Asked, text: str) -> frozenset[int]:
    """The messages of `1-4,7`, from 0; a reply goes with its message. Raises UserError."""
    found: frozenset[int] = frozenset()
    if text.lower() == "none":
        return found
    for part in re.split(r"[,\s]+", text):
        match = _SPAN.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= len(asked.path):
            raise UserError(f"{part} is no message of this chat: give numbers from 1 to {len(asked.path)}, or none.")
        for index in range(first - 1, last):
            found = found if index in found else toggled(asked.path, found, index)
    return found
