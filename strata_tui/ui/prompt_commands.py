"""Actions around the prompt: what is attached to the message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual.content import Content

from ..errors import UserError
from .completer import path_of
from .prompt_history import MOST
from .screens.text_screen import TextScreen

if TYPE_CHECKING:
    from .attachments import Attachment
    from .screens.chat import ChatScreen

_SHOWN_LINES = 2000


class PromptCommands:
    """A part of Commands."""

    _screen: ChatScreen

    async def load_history(self) -> None:
        """Gives the prompt what was sent in earlier runs of the program."""
        screen = self._screen
        screen.prompt.sent.extend(await asyncio.to_thread(screen.store.sent_messages, MOST))

    def do_history_older(self, _: str) -> None:
        self._screen.prompt.show_older()

    def do_history_newer(self, _: str) -> None:
        self._screen.prompt.show_newer()

    async def do_attach(self, path: str) -> None:
        """Attaches a file; without a path it starts the search for one."""
        prompt = self._screen.prompt
        if path:
            await self._screen.completer.attach(path, path_of(path))
        else:
            prompt.focus()
            prompt.insert(" @" if prompt.text and not prompt.text[-1].isspace() else "@", prompt.document.end)
            prompt.move_cursor(prompt.document.end)

    def do_detach(self, number: str) -> None:
        """Removes the attachment of that number, counted from 1, or the last one."""
        count = len(self._attached())
        if number and not (number.isascii() and number.isdigit() and 1 <= int(number) <= count):
            raise UserError(f"There is no attachment {number}: give a number from 1 to {count}.")
        self._remove(int(number) - 1 if number else count - 1)

    def do_attachment_left(self, _: str) -> None:
        self._screen.attachments.move(-1)

    def do_attachment_right(self, _: str) -> None:
        self._screen.attachments.move(1)

    def do_attachment_open(self, _: str) -> None:
        one = self._attached()[self._screen.attachments.chosen]
        lines = one.text.split("\n")
        text = "\n".join(lines[:_SHOWN_LINES])
        if len(lines) > _SHOWN_LINES:
            text += f"\n... and {len(lines) - _SHOWN_LINES} more lines, which are sent too"
        self._screen.app.push_screen(TextScreen(one.label, lambda _: Content(text)))

    def do_attachment_remove(self, _: str) -> None:
        self._attached()
        self._remove(self._screen.attachments.chosen)

    def do_attachment_insert(self, _: str) -> None:
        """Puts an attachment's text into the prompt in its place."""
        self._attached()
        screen = self._screen
        one = screen.prompt.detach(screen.attachments.chosen)
        start, end = screen.prompt.selection
        screen.prompt.replace(one.text, start, end, maintain_selection_offset=False)
        screen.prompt.focus()

    def _attached(self) -> list[Attachment]:
        attached = list(self._screen.prompt.attached)
        if not attached:
            raise UserError("Nothing is attached: type @ and letters of a file's path, or paste a long text.")
        return attached

    def _remove(self, index: int) -> None:
        gone = self._screen.prompt.detach(index)
        self._screen.flash.say(f"Removed: {gone.label}")
        if not self._screen.prompt.attached:
            self._screen.prompt.focus()
