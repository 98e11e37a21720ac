"""Actions on messages: moving, copying, editing, branches."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import lru_cache
from typing import TYPE_CHECKING

from ..conversation import in_view
from ..errors import UserError
from ..render import CodeBlock, code_blocks
from ..room import toggled
from ..sessions.rows import Role
from ..text import clean
from .chat import Turn
from .screens.code_picker import CodePicker

if TYPE_CHECKING:
    from .chats import Chats
    from .screens.chat import ChatScreen


class TurnCommands:
    """A part of Commands. A key in the transcript is for the selected message, a command for the last one that fits."""

    _screen: ChatScreen

    chats: Chats

    if TYPE_CHECKING:

        def copy(self, text: str, what: str) -> None: ...
        async def told(self, work: Awaitable[None]) -> None: ...

    def idle(self) -> frozenset[str]:
        """Actions that would do nothing with the selected message, by their ids."""
        turn = self._screen.transcript.selected
        does = {
            "copy_here": turn is not None and bool(turn.text),
            "code_here": turn is not None and _has_code(turn),
            "edit_here": turn is not None and turn.role is Role.USER,
            "regenerate_here": turn is not None,
            "go_on_here": turn is not None and turn.role is Role.ASSISTANT,
            "branch_previous": turn is not None and len(turn.siblings) > 1,
            "fork_here": turn is not None and not turn.live,
        }
        return frozenset(id for id, something in does.items() if not something)

    # Moving

    async def do_message_up(self, _: str) -> None:
        await self._screen.transcript.move(-1)

    async def do_message_down(self, _: str) -> None:
        if not await self._screen.transcript.move(1):
            self._screen.prompt.focus()

    def do_messages(self, _: str) -> None:
        """From the prompt to the messages."""
        if not self._screen.chat.turns:
            raise UserError("There are no messages yet.")
        self._screen.transcript.focus()

    async def do_top(self, _: str) -> None:
        await self._screen.transcript.select_first()

    async def do_follow(self, _: str) -> None:
        await self._screen.transcript.go_to_end()

    async def do_follow_here(self, _: str) -> None:
        await self._screen.transcript.select_last()

    def do_think(self, _: str) -> None:
        self._screen.transcript.fold_thinking()

    def do_fold_here(self, _: str) -> None:
        self._screen.transcript.fold_selected()

    def recall(self) -> bool:
        """Up in an empty prompt: what waits comes back, else one's last message is selected; false: there is none."""
        screen = self._screen
        if screen.turns.take_back():
            return True
        last = screen.chat.last_message()
        if last is None:
            return False
        screen.run_worker(screen.turns.go_to(last), group="recall")
        return True

    # Copying

    def do_copy(self, what: str) -> None:
        """Copies the last reply; with `code` a code block of it, where a number says which."""
        reply = self._screen.transcript.selected or self._screen.chat.last_reply()
        if reply is None:
            raise UserError("There is no reply to copy yet.")
        word, _, number = what.strip().partition(" ")
        if not word:
            self.copy(clean(reply.text), "The last reply")
        elif word.lower() != "code" or (number and not (number.isascii() and number.isdigit())):
            raise UserError(f"/copy takes nothing, code, or code and a number; not {what}.")
        else:
            self._copy_code(reply, int(number) if number else None)

    def do_copy_here(self, _: str) -> None:
        turn = self._chosen()
        self.copy(clean(turn.text), "The message")

    def do_code_here(self, _: str) -> None:
        self._copy_code(self._chosen(), None)

    def _copy_code(self, turn: Turn, number: int | None) -> None:
        blocks = code_blocks(turn.text)
        if not blocks:
            raise UserError("There is no code in this message.")
        if number is not None:
            if not 1 <= number <= len(blocks):
                raise UserError(f"There is no code block {number}: give a number from 1 to {len(blocks)}.")
            self._copy_block(blocks[number - 1])
        elif len(blocks) == 1:
            self._copy_block(blocks[0])
        else:
            self._screen.app.push_screen(CodePicker(blocks), self._copy_block)

    def _copy_block(self, block: CodeBlock | None) -> None:
        if block is not None:
            self.copy(block.code, f"The {block.language} code" if block.language else "The code")

    # Editing and replies again

    def do_edit(self, _: str) -> None:
        screen = self._screen
        if screen.turns.take_back():
            return
        last = screen.chat.last_message()
        if last is None:
            raise UserError("There is no message of yours to edit yet.")
        screen.turns.edit(last)

    def do_edit_here(self, _: str) -> None:
        self._screen.turns.edit(self._chosen())

    def do_regenerate(self, _: str) -> None:
        self._screen.turns.regenerate(self._last())

    def do_regenerate_here(self, _: str) -> None:
        self._screen.turns.regenerate(self._chosen())

    def do_go_on(self, _: str) -> None:
        self._screen.turns.go_on(self._last())

    def do_go_on_here(self, _: str) -> None:
        self._screen.turns.go_on(self._chosen())

    # Room

    def do_make_room(self, _: str) -> None:
        self._screen.room.ask()

    async def do_leave_out_here(self, _: str) -> None:
        """The selected message is not sent from now on, or it is again; a reply goes with its message."""
        screen, turn = self._screen, self._chosen()
        screen.turns.free()
        path = screen.chat.turns
        out = frozenset(n for n, seen in enumerate(in_view(path)) if not seen)
        out = toggled(path, out, path.index(turn))
        await screen.room.set_sent(screen.chat, {one: n not in out for n, one in enumerate(path)})
        key = screen.key_of("leave_out_here", "/room")
        screen.flash.say("Sent again from now on." if turn.in_view else f"Not sent from now on; {key} takes it back.")

    # Branches

    async def do_branch(self, which: str) -> None:
        """Shows the next branch of the last message that has several, or the one before, or one by number."""
        turn = self._screen.transcript.selected
        if turn is None or len(turn.siblings) < 2:
            turn = next((t for t in reversed(self._screen.chat.turns) if len(t.siblings) > 1), None)
        if turn is None:
            raise UserError("There is one branch only; /edit or /regen makes another.")
        which = which.strip().lower()
        siblings = turn.siblings
        if which.isascii() and which.isdigit():
            if not 1 <= int(which) <= len(siblings):
                raise UserError(f"There is no branch {which}: give a number from 1 to {len(siblings)}.")
            await self._screen.turns.switch_to(siblings[int(which) - 1])
        elif which in ("", "next"):
            await self._screen.turns.switch_to(siblings[(siblings.index(turn) + 1) % len(siblings)])
        elif which in ("prev", "previous"):
            await self._screen.turns.switch_to(siblings[siblings.index(turn) - 1])
        else:
            raise UserError(f"/branch takes next, prev or a number; not {which}.")

    async def do_branch_previous(self, _: str) -> None:
        await self._screen.turns.switch(self._chosen(), -1)

    async def do_branch_next(self, _: str) -> None:
        await self._screen.turns.switch(self._chosen(), 1)

    async def switch_branch(self, turn: Turn, step: int) -> None:
        """A click on a branch mark."""
        await self.told(self._screen.turns.switch(turn, step))

    async def do_fork_here(self, _: str) -> None:
        await self.chats.fork(self._chosen())

    def _chosen(self) -> Turn:
        turn = self._screen.transcript.selected
        if turn is None:
            raise UserError("No message is selected: up and down select one.")
        return turn

    def _last(self) -> Turn:
        if not self._screen.chat.turns:
            raise UserError("There are no messages yet.")
        return self._screen.transcript.selected or self._screen.chat.turns[-1]


def _has_code(turn: Turn) -> bool:
    """Whether code of it can be copied; of one that still grows, which is asked often, whether a block has begun."""
    return any(fence in turn.text for fence in ("```", "~~~")) if turn.live else _text_has_code(turn.text)


@lru_cache(maxsize=1)
def _text_has_code(text: str) -> bool:
    return bool(code_blocks(text))
