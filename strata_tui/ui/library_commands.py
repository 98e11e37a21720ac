"""Actions on chats as a whole: finding, pinning, forking, the bin, files in and out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..sessions.search import Hit
from .chats import Chats
from .export import Wish, export_chat, parse_wish
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
        session = screen.chat.session
        if session is None:
            raise UserError("This chat is empty: there is nothing to export.")
        if argument:
            await self._export(session, parse_wish(argument))
            return
        info = await asyncio.to_thread(screen.store.session, session)
        branches = len((await asyncio.to_thread(screen.store.tree, session)).leaves())

        async def chosen(wish: Wish | None) -> None:
            if wish is not None:
                await self.told(self._export(session, wish))

        screen.app.push_screen(ExportScreen(info, branches), chosen)

    async def _export(self, session: int, wish: Wish) -> None:
        written = await export_chat(self._screen.store, session, wish)
        self._screen.flash.say(f"Written to {written}", stay=True)

    async def do_import(self, path: str) -> None:
        screen = self._screen
        if not path:
            raise UserError("Name the file: /import PATH, of ChatGPT, llama.cpp's web interface or our own JSON.")
        screen.flash.say(f"Reading {path} …", stay=True)

        from ..sessions.imports import read_file, take_in

        def work() -> str:
            return take_in(screen.store, read_file(Path(path).expanduser()))

        news = await asyncio.to_thread(work)
        screen.flash.say(news, stay=True)
        await self.chats.refresh()
