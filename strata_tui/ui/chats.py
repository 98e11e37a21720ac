"""Opening, renaming, pinning, forking and deleting chats. Reads and writes of the store happen off the UI thread."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from ..engine.snapshot_names import chat_key
from ..errors import UserError
from ..sessions.rows import MessageRow, SessionInfo
from .actions import key_name, parse_slash
from .chat import Chat, Turn

if TYPE_CHECKING:
    from .screens.chat import ChatScreen

_DELETED = "This chat was deleted; /bin brings it back."


def _content(info: SessionInfo, rows: list[MessageRow]) -> object:
    """What is equal as long as a stored chat shows the same; its draft is not a part of it."""
    return replace(info, draft=""), rows


class Chats:
    """The chat screen's dealings with the list of chats. Methods may raise UserError."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self._changing = asyncio.Lock()  # one change of the shown chat at a time
        self._deleted: list[int] = []  # by this run of the program, the last one last
        self._held: set[int] = set()  # chats that this program has claimed
        self._kept: tuple[int | None, str] = (None, "")  # the chat and draft that were stored last
        self.elsewhere: int | None = None  # the process that has the shown chat open, which is read-only then
        self._read: object = None  # what is shown of that chat, see _content
        self._looking = False  # whether that chat is still open there

    async def refresh(self) -> None:
        """Fills the list again, if it is shown; never raises, for it is called for its own sake."""
        screen = self._screen
        try:
            await self._hold()
            if not screen.chats.display:
                return
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
        await self._leave_for_new()
        self._screen.panels.close_over()
        self._screen.prompt.focus()

    async def _leave_for_new(self) -> None:
        async with self._changing:
            await self.keep_draft()
            self.elsewhere = None
            await self._show(Chat(system=self._screen.options.system()), "")

    async def open(self, session: int, message: int | None = None) -> None:
        """Shows a stored chat, with what was typed there and not sent; goes to a message, in its branch."""
        screen = self._screen
        async with self._changing:
            shown = session == screen.chat.session
            if shown and message is not None and self._turn(message) is None:
                turn = self._find(message)
                if turn is not None:
                    await screen.turns.switch_to(turn)
                else:  # written elsewhere since
                    await self._load(session, message)
            elif not shown:
                await self._load(session, message)
            else:
                self.look()
        screen.panels.close_over()
        screen.prompt.focus()
        turn = self._turn(message) if message is not None else None
        if turn is not None:
            await screen.transcript.reveal(turn)

    async def _load(self, session: int, message: int | None) -> None:
        screen = self._screen
        info = await asyncio.to_thread(screen.store.session, session)
        if info.deleted_at is not None:
            raise UserError(_DELETED)
        await self.keep_draft()
        live = screen.turns.live_chat(session)
        if live is not None:  # its turns are growing
            self.elsewhere = None
            chat, draft = live, live.typed
        else:
            await self._claim(session)
            rows = await asyncio.to_thread(screen.store.messages, session)
            self._read = _content(info, rows) if self.elsewhere is not None else None
            chat = Chat.of(info, rows)
            draft = "" if self.elsewhere is not None else info.draft
            if session == screen.chat.session:
                draft = screen.prompt.message
        if message is not None and all(turn.key != message for turn in chat.turns):
            turn = next((turn for turn in chat.all_turns() if turn.key == message), None)
            if turn is None:
                raise UserError("This message is gone.")
            chat.show_through(turn)
            if self.elsewhere is None:
                screen.replies.keep_shown(chat)
        await self._show(chat, draft)

    def _find(self, message: int) -> Turn | None:
        """The turn of a stored message in any branch of the shown chat."""
        return next((turn for turn in self._screen.chat.all_turns() if turn.key == message), None)

    def _turn(self, message: int) -> Turn | None:
        """The shown turn of a stored message."""
        return next((turn for turn in self._screen.chat.turns if turn.key == message), None)

    # Chats that are open in another program

    async def _claim(self, session: int) -> None:
        """Says that this program has the chat open, or learns which other one has."""
        self.elsewhere = await asyncio.wrap_future(self._screen.store.claim(session))
        if self.elsewhere is None:
            self._held.add(session)
        else:
            self._screen.flash.say(f"{self.read_only()} /fork goes on in a copy.", stay=True)

    async def _hold(self) -> None:
        """Claims a chat that is stored by now, and gives up those that are not shown any more."""
        screen = self._screen
        shown = screen.chat.session
        if shown is not None and shown not in self._held and self.elsewhere is None:
            await self._claim(shown)
            screen.show_title()
        for session in self._held - {shown, *screen.turns.live_sessions()}:
            self._held.discard(session)
            await asyncio.wrap_future(screen.store.release(session))

    def read_only(self) -> str:
        """Why the shown chat cannot be changed, in one sentence; nothing where it can be."""
        if self.elsewhere is None:
            return ""
        return f"This chat is open in another window (process {self.elsewhere}) and read-only here."

    def look(self, *, sending: bool = False) -> None:
        """Call when the person does something: the other program may have closed the chat that is read-only."""
        if self.elsewhere is None or self._looking or (self._screen.turns.editing and not sending):
            return  # a chat that is read anew ends an edit in it
        self._looking = True
        self._screen.run_worker(self._screen.commands.told(self._take_over()), group="look")

    async def _take_over(self) -> None:
        """Claims the shown chat if the other program has closed it; shows it anew if that has written to it."""
        screen, store = self._screen, self._screen.store
        try:
            async with self._changing:
                session = screen.chat.session
                if self.elsewhere is None or session is None or screen.leaving:
                    return
                other = await asyncio.wrap_future(store.claim(session))
                if other is not None:
                    self.elsewhere = other
                    return
                self._held.add(session)
                info = await asyncio.to_thread(store.session, session)
                rows = await asyncio.to_thread(store.messages, session)
                if info.deleted_at is not None:
                    self._held.discard(session)
                    await asyncio.wrap_future(store.release(session))
                    raise UserError(_DELETED)
                self.elsewhere, typed = None, screen.prompt.message
                changed = self._read != _content(info, rows)
                if changed:
                    await self._show(Chat.of(info, rows), typed or info.draft)
                elif not typed:
                    screen.prompt.load_message(info.draft)
                screen.show_title()
                self._kept = (session, info.draft)
        finally:
            self._looking = False
        news = "was read anew and can be written to" if changed else "can be written to"
        screen.flash.say(f"The other window has closed this chat: it {news}.", stay=True)

    async def _show(self, chat: Chat, draft: str) -> None:
        self._kept = (chat.session, draft)
        self._screen.prompt.load_message(draft)
        await self._screen.show_chat(chat)

    async def keep_draft(self) -> None:
        """Call before another chat is shown, and at the end: stores what is typed and not sent.

        A new chat is stored for its draft's sake; one that was, and came to nothing, is removed.
        """
        screen, text = self._screen, self._screen.turns.left()
        if (screen.chat.session is None or self.elsewhere is not None) and not text.strip():
            return
        if self.elsewhere is None:
            session = await screen.chat.stored(screen.store)
        else:  # the other program's draft is its own
            session = await asyncio.wrap_future(screen.store.create_session(system=screen.chat.system))
        await asyncio.wrap_future(screen.store.set_draft(session, text))
        unused = not text and screen.chat.unused and screen.chat.system == screen.options.system()
        if unused and await asyncio.wrap_future(screen.store.remove_unused(session)):
            self._held.discard(session)
            screen.chat.session = None

    async def save_draft(self) -> None:
        """Stores what is typed so far, in case the program dies; a command is not worth a chat."""
        screen = self._screen
        async with self._changing:
            self.look()
            command = screen.prompt.text.startswith("/") and parse_slash(screen.prompt.text) is not None
            if self.elsewhere is not None or command or screen.leaving:
                return
            text = screen.turns.left()
            if (screen.chat.session, text) == self._kept or (screen.chat.session is None and not text.strip()):
                return
            chat, session = screen.chat, await screen.chat.stored(screen.store)
            text = screen.turns.draft_of(chat)  # a message may have been sent meanwhile
            await asyncio.wrap_future(screen.store.set_draft(session, text))
            self._kept = (session, text)
            screen.departure.stored(text)
            await self._hold()

    async def rename(self, session: int | None, title: str) -> None:
        """Gives a chat a title; a new chat keeps it for when it is stored."""
        screen = self._screen
        if session is not None:
            await asyncio.wrap_future(screen.store.rename(session, title))
        if session == screen.chat.session:
            screen.chat.title = title
            screen.show_title()
        await self.refresh()

    async def turn_pin(self, session: int | None) -> None:
        """Keeps a chat at the top of the list, or not any more."""
        screen = self._screen
        if session is None:
            raise UserError("This chat is new: there is nothing to keep on top yet.")
        info = await asyncio.to_thread(screen.store.session, session)
        await asyncio.wrap_future(screen.store.set_pinned(session, not info.pinned))
        await self.refresh()
        screen.flash.say(f"{'No longer kept' if info.pinned else 'Kept'} on top: {info.title or 'untitled'}")

    async def fork(self, turn: Turn | None = None, *, first: Turn | None = None) -> None:
        """Copies the branch up to a message, or the shown one, into a new chat and shows that.

        Whole, or from the message `first` on. What is typed goes along.
        """
        screen = self._screen
        session = screen.chat.session
        if session is None:
            raise UserError("This chat is empty: there is nothing to fork.")
        if turn is not None and turn.live:
            raise UserError("This reply is being written: esc stops it, then it can be forked.")
        screen.turns.leave_edit()
        text = screen.prompt.message
        end, begin = (one.ref if one is not None else None for one in (turn, first))
        copy = await asyncio.wrap_future(screen.store.fork(session, end, begin))
        screen.prompt.load_message("")
        await self.open(copy)
        screen.prompt.load_message(text)
        await self.refresh()
        screen.flash.say("A copy of the chat up to here; the other one is left as it is.")

    # Deleting

    async def delete(self, session: int | None) -> None:
        """Takes a chat off the list. A reply that runs in it is stopped."""
        screen = self._screen
        if session is None:
            raise UserError("This chat is new: there is nothing to delete.")
        title = self.title_of(session) or "the chat"
        run = screen.replies.running
        if run is not None and run.chat.session == session:
            screen.replies.stop()
        screen.turns.forget(session)
        await asyncio.wrap_future(screen.store.delete(session))
        self._deleted.append(session)
        if session == screen.chat.session:
            await self._leave_for_new()  # keeps the draft of the deleted one
        await self.refresh()
        keys = "".join(f" ({key_name(key)})" for key in screen.keymap.of("undelete")[:1])
        screen.flash.say(f"Deleted: {title}   /undo{keys} brings it back", answers=True)

    async def undelete(self) -> None:
        """Brings back the chat deleted last, by this run of the program or by one before."""
        if self._deleted:
            session = self._deleted.pop()
        else:
            gone = await self.deleted()
            if not gone:
                raise UserError("No chat was deleted.")
            session = gone[0].id
        await self.restore(session)

    async def restore(self, session: int) -> None:
        """Brings back a deleted chat and shows it."""
        screen = self._screen
        await asyncio.wrap_future(screen.store.restore(session))
        self._deleted = [s for s in self._deleted if s != session]
        await self.open(session)
        await self.refresh()
        screen.flash.say(f"Brought back: {screen.chat.shown_title}")

    async def deleted(self) -> list[SessionInfo]:
        """The deleted chats, the one deleted last first."""
        return await asyncio.to_thread(self._screen.store.list_sessions, deleted=True)

    async def remove(self, session: int | None) -> None:
        """Removes a deleted chat for good, or all of them."""
        store = self._screen.store
        gone = await asyncio.wrap_future(store.empty_bin(session=session))
        self._screen.engine.forget([chat_key(store.path, key) for key in gone])
        left = {info.id for info in await self.deleted()}
        self._deleted = [s for s in self._deleted if s in left]
