"""Keeps the menu above the prompt up to date with what is typed, and does what is chosen there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from .attachments import read_file
from .completion import Choice, Kind, Source, Token, command_choices, fixed_choices, token_at
from .files import FileIndex

if TYPE_CHECKING:
    from .screens.chat import ChatScreen

_MOST = 40  # choices offered at once


class Completer:
    """`sources` complete the arguments of actions, by the action's id."""

    def __init__(self, screen: ChatScreen, sources: Mapping[str, Source], folder: Path | None = None) -> None:
        self._screen = screen
        self._sources = sources
        self._files = FileIndex(folder or Path.cwd())
        self._wanted: Token | None = None  # to be looked for next; a newer wish takes an older one's place
        self._looking = False
        self._left: tuple[Kind, int] | None = None  # the token whose menu was closed by a key

    def update(self) -> None:
        """Offers what fits what is typed now; called after each change of text or cursor."""
        screen, token = self._screen, self._token()
        if token is None:
            self._left = None
            screen.menu.close()
            return
        if self._left == (token.kind, token.start):
            return
        self._left = None
        if token.kind is Kind.COMMAND:
            screen.menu.show(command_choices(token.text, screen.keymap.of))
        elif token.kind is Kind.FILE or (token.action is not None and token.action.id in self._sources):
            self._wanted = token
            if not self._looking:
                self._looking = True
                screen.run_worker(self._look(), group="complete")
        elif token.action is not None:
            screen.menu.show(fixed_choices(token.action, token.text))

    def leave(self) -> None:
        """The menu was closed by a key: it stays closed for this token."""
        token = self._token()
        self._left = (token.kind, token.start) if token else None

    async def choose(self, submit: bool) -> None:
        """Puts the chosen line in the token's place, and attaches a file. Raises UserError."""
        screen, token = self._screen, self._token()
        menu, prompt = screen.menu, screen.prompt
        if token is None or not menu.open:
            return
        choice = menu.chosen
        sure = menu.moved or len(menu.choices) == 1
        menu.close()
        if token.kind is Kind.FILE:
            prompt.complete(token.start, f"@{choice.text} ")
            await self.attach(choice.text, self._files.folder / choice.text)
            return
        prompt.complete(token.start, choice.text + (" " if choice.more and token.kind is Kind.COMMAND else ""))
        if submit and sure and not choice.more:
            prompt.submit()

    async def attach(self, name: str, path: Path) -> None:
        """Attaches a file to the prompt. Raises UserError."""
        self._screen.prompt.attach(await asyncio.to_thread(read_file, path, name))

    def _token(self) -> Token | None:
        prompt = self._screen.prompt
        if not prompt.selection.is_empty:
            return None
        return token_at(prompt.text, *prompt.cursor_location)

    async def _look(self) -> None:
        """Looks for what is wanted until nothing more is; one search at a time."""
        try:
            while (token := self._wanted) is not None:
                self._wanted = None
                find = self._find_files if token.action is None else self._sources[token.action.id]
                choices = await asyncio.to_thread(find, token.text)
                if self._token() == token:
                    self._screen.menu.show(choices[:_MOST])
        finally:
            self._looking = False

    def _find_files(self, letters: str) -> Sequence[Choice]:
        self._files.refresh()
        return [Choice(path) for path in self._files.find(letters, _MOST)]


def path_of(text: str) -> Path:
    """The path a person typed. Raises UserError when nothing was."""
    if not text:
        raise UserError("Say which file: /attach PATH, or type @ and letters of its path.")
    return Path(text).expanduser()
