"""Actions around models: choosing one, and loading it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.gguf_info import expert_groups, read_info
from ..errors import UserError
from .completion import Choice, path_choices
from .screens.models import ModelsScreen

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .screens.chat import ChatScreen


class ModelCommands:
    """A part of Commands."""

    _screen: ChatScreen

    if TYPE_CHECKING:

        async def told(self, work: Awaitable[None]) -> None: ...

    async def do_model(self, name: str) -> None:
        """Loads the model of that name or path; without one the picker opens."""
        screen = self._screen
        if name:
            self._refuse_load()
            await self._load(await asyncio.to_thread(screen.shelf.path_of, name))
            return

        async def load(path: Path | None) -> None:
            if path is not None:
                await self.told(self._load(path))

        current = Path(screen.model.path) if screen.model else None
        screen.app.push_screen(ModelsScreen(screen.shelf, current), load)

    async def do_open(self, path: str) -> None:
        """Loads a file, or the last one again."""
        await self._load(Path(path).expanduser() if path else None)

    async def _load(self, file: Path | None) -> None:
        self._refuse_load()
        if file is not None:  # what can be seen from here is said before the loaded model goes
            await asyncio.to_thread(lambda: expert_groups(read_info(file)))
            self._refuse_load()
        self._screen.load(file)

    def _refuse_load(self) -> None:
        if self._screen.replies.busy:
            raise UserError("A reply is running: esc stops it.")
        if self._screen.loader.loading:
            raise UserError("A model is loading: esc stops it.")

    def model_choices(self, typed: str) -> list[Choice]:
        """Completions of what follows /model."""
        if typed.startswith(("/", "~", ".")):
            return path_choices(typed, (".gguf",))
        return [Choice(name) for name in self._screen.shelf.names() if typed.lower() in name.lower()]
