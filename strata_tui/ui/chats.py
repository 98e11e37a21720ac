"""Opening, renaming and deleting chats. Reads and writes of the store happen off the UI thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..errors import UserError
from .chat import Chat

if TYPE_CHECKING:
    from .screens.chat import ChatScreen


class Chats:
    """The chat screen's dealings with the list of chats. Methods may raise UserError."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self._changing = asyncio.Lock()  # one change of the shown chat at a time
        self._deleted: list[int] = []  # by this run of the program, the last one last

    async def refresh(self) -> None:
        """Fills the list again, if it is shown; never raises, for it is called for its own sake."""
        screen = self._screen
        if not screen.chats.display:
            return
        try:
            sessions = await asyncio.to_thread(screen.store.list_sessions)
        except UserError as error:
            screen.flash.say(str(error), error=True)
            return
        run = screen.replies.running
        screen.chats.show(sessions, screen.chat.session, run.chat.session if run else None)

    def chosen(self) -> int:
        """The chat highlighted in the list."""
        session = self._screen.chats.highlighted
        if session is None:
            raise UserError("No chat is highlighted.")
        return session

    def title_of(self, session: int | None) -> str:
        """A chat's title as far as the screen knows it."""
        if session == self._screen.chat.session:
            return self._screen.chat.title
        info = self._screen.chats.session(session) if session is not None else None
        return info.title if info else ""

    async def new(self) -> None:
        """Shows an empty chat; it is stored with its first message."""
        async with self._changing:
            await self.keep_draft()
            await self._show(Chat(system=self._screen.options.system()), "")

    async def open(self, session: int) -> None:
        """Shows a stored chat, with what was typed there and not sent."""
        screen = self._screen
        async with self._changing:
            if session != screen.chat.session:
                await self.keep_draft()
                run = screen.replies.running
                info = await asyncio.to_thread(screen.store.session, session)
                if run is not None and run.chat.session == session:
                    chat = run.chat  # its last turn is growing
                else:
                    chat = Chat.of(info, await asyncio.to_thread(screen.store.branch, session))
                await self._show(chat, info.draft)
        screen.panels.close_over()
        screen.prompt.focus()

    async def _show(self, chat: Chat, draft: str) -> None:
        self._screen.prompt.load_message(draft)
        await self._screen.show_chat(chat)
        self._screen.prompt.focus()

    async def keep_draft(self) -> None:
        """Stores what is typed and not sent; a new chat is stored for its draft's sake."""
        screen, text = self._screen, self._screen.prompt.message
        if screen.chat.session is None and not text.strip():
            return
        session = await screen.chat.stored(screen.store)
        await asyncio.wrap_future(screen.store.set_draft(session, text))

    async def rename(self, session: int | None, title: str) -> None:
        """Gives a chat a title; a new chat keeps it for when it is stored."""
        screen = self._screen
        if session is not None:
            await asyncio.wrap_future(screen.store.rename(session, title))
        if session == screen.chat.session:
            screen.chat.title = title
            screen.show_title()
        await self.refresh()

    async def delete(self, session: int | None) -> None:
        """Takes a chat off the list. A reply that runs in it is stopped."""
        screen = self._screen
        if session is None:
            raise UserError("This chat is new: there is nothing to delete.")
        title = self.title_of(session) or "the chat"
        run = screen.replies.running
        if run is not None and run.chat.session == session:
            screen.replies.stop()
        await asyncio.wrap_future(screen.store.delete(session))
        self._deleted.append(session)
        if session == screen.chat.session:
            await self.new()  # keeps the draft of the deleted one
        await self.refresh()
        screen.flash.say(f"Deleted: {title}   /undo (alt+u) brings it back", stay=True)

    async def undelete(self) -> None:
        """Brings back the chat deleted last, by this run of the program or by one before."""
        screen = self._screen
        if self._deleted:
            session = self._deleted.pop()
        else:
            gone = await asyncio.to_thread(screen.store.list_sessions, deleted=True)
            if not gone:
                raise UserError("No chat was deleted.")
            session = max(gone, key=lambda s: s.deleted_at or 0).id
        await asyncio.wrap_future(screen.store.restore(session))
        await self.open(session)
        await self.refresh()
        screen.flash.say(f"Brought back: {screen.chat.shown_title}")
