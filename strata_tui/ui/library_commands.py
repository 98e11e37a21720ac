"""Actions on chats as a whole: finding, pinning, forking, the bin, files in and out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..sessions.search import Hit
from ..sessions.tree import Tree
from .chats import Chats
from .export import Wish, export_chat, export_shown, parse_wish, shown_rows
from .screens.bin import BinScreen
from .screens.export import ExportScreen
from .screens.search import SearchScreen

if TYPE_CHECKING:
    from .screens.chat import ChatScreen


class LibraryCommands:
    """A part of Commands."""

    _screen: ChatScreen
    chats: Chats
    _searched = ""  # what was searched for last

    async def told(self, work: Awaitable[None]) -> None:
        raise NotImplementedError

    # Finding

    def do_search(self, words: str) -> None:
        def found(answer: tuple[str, Hit | None] | None) -> None:
            if answer is None:
                return
            self._searched, hit = answer
            if hit is not None:
                self._screen.run_worker(self.told(self.chats.open(hit.session, hit.message)), group="jump")

        self._screen.app.push_screen(SearchScreen(self._screen.store, words or self._searched), found)

    do_search_here = do_search
    do_search_chats = do_search

    def do_filter_chats(self, _: str) -> None:
        self._screen.chats.focus_filter()

    # The list

    async def do_pin_chat(self, _: str) -> None:
        await self.chats.turn_pin(self._screen.chat.session)

    async def do_pin_listed(self, _: str) -> None:
        await self.chats.turn_pin(self.chats.chosen())

    async def do_fork(self, _: str) -> None:
        await self.chats.fork(self._screen.transcript.selected)

    def do_bin(self, _: str) -> None:
        self._screen.app.push_screen(BinScreen(self.chats))

    do_bin_chats = do_bin

    # Files

    async def do_export(self, argument: str) -> None:
        screen = self._screen
        chat, session = screen.chat, screen.chat.session
        draft = (screen.turns.left() or screen.departure.draft) if screen.departure.warning else ""
        from_screen = bool(draft) or screen.replies.unkept(chat)  # the store has not all of it
        if session is None and not from_screen:
            raise UserError("This chat is empty: there is nothing to export.")

        async def export(wish: Wish) -> None:
            if from_screen or session is None:
                written = await export_shown(chat, draft, wish)
            else:
                written = await export_chat(screen.store, session, wish)
            screen.flash.say(f"Written to {written}", answers=True)

        if argument:
            await export(parse_wish(argument))
            return
        if from_screen or session is None:
            info, rows = shown_rows(chat, draft)
            branches = len(Tree(rows).leaves())
        else:
            info = await asyncio.to_thread(screen.store.session, session)
            branches = len((await asyncio.to_thread(screen.store.tree, session)).leaves())

        async def chosen(wish: Wish | None) -> None:
            if wish is not None:
                await self.told(export(wish))

        screen.app.push_screen(ExportScreen(info, branches), chosen)

    async def do_import(self, path: str) -> None:
        screen = self._screen
        if not path:
            raise UserError("Name the file: /import PATH, of ChatGPT, llama.cpp's web interface or our own JSON.")
        screen.flash.say(f"Reading {path} …", stay=True)

        from ..sessions.imports import read_file, take_in

        def work() -> str:
            return take_in(screen.store, read_file(Path(path).expanduser()))

        news = await asyncio.to_thread(work)
        screen.flash.say(news, answers=True)
        await self.chats.refresh()
