"""Ending the program: what cannot be stored is said once before it is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from ..errors import UserError
from .screens.action_screen import ActionScreen

if TYPE_CHECKING:
    from .screens.chat import ChatScreen


class Leaving:
    """The first wish to quit stays where something is not stored; the next one leaves without it."""

    def __init__(self, screen: ChatScreen, problems: deque[Exception]) -> None:
        self._screen = screen
        self._problems = problems
        self.ending = False
        self.warning = ""  # what was said when the program stayed, until a draft is stored
        self.draft = ""  # what was typed then: a command may stand in its place by now

    def begin(self) -> None:
        """Ends the program once everything is stored."""
        if not self.ending:
            self.ending = True
            self._screen.run_worker(self._leave(), group="leave")

    def stored(self, draft: str) -> None:
        """A draft was stored: what cannot be from now on is news. An empty one has room on a full disk, too."""
        if draft.strip():
            self.warning = self.draft = ""

    async def _leave(self) -> None:
        screen = self._screen
        screen.flash.say("Stopping the engine and storing the chat …", stay=True)
        await screen.turns.settle()
        lost = await self._lost()
        if lost and not self.warning:
            await self._stay(lost)
            return
        screen.loader.stop()
        await asyncio.to_thread(screen.engine.close)
        screen.before_exit()
        screen.app.exit(0)

    async def _lost(self) -> list[tuple[str, UserError]]:
        """What cannot be stored, in words, and why."""
        screen = self._screen
        works = (("the end of a reply", screen.replies.keep_ends), ("what you typed", screen.commands.chats.keep_draft))
        lost: list[tuple[str, UserError]] = []
        for what, work in works:
            try:
                await work()
            except UserError as error:
                lost.append((what, error))
        return lost

    async def _stay(self, lost: list[tuple[str, UserError]]) -> None:
        screen = self._screen
        with contextlib.suppress(UserError):
            await asyncio.to_thread(screen.store.flush)  # behind it the store has told of every failure
        self._problems.clear()  # they are what is said here
        what = " and ".join(what for what, _ in lost)
        why = str(lost[0][1]).rstrip(".")
        self.draft = screen.turns.left()
        export = screen.key_of("export", "/export")
        self.warning = (
            f"Not stored: {what} ({why}); {export} or /export PATH writes the chat with it elsewhere, "
            "and quitting again leaves without it."
        )
        screen.turns.give_all_back()
        self.ending = False
        screen.flash.say(self.warning, error=True)
        page = screen.app.screen
        if isinstance(page, ActionScreen):
            page.tell(self.warning, error=True)
