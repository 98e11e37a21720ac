"""Actions around models: choosing one, and loading it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import models_dir
from ..engine.events import LoadProgress
from ..errors import UserError
from .completion import Choice, path_choices
from .widgets.load_bar import LoadBar

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .puller import Puller
    from .screens.chat import ChatScreen

_PULL_SECONDS = 0.5


class ModelCommands:
    """A part of Commands."""

    _screen: ChatScreen
    _puller: Puller | None = None

    if TYPE_CHECKING:

        async def told(self, work: Awaitable[None]) -> None: ...

    async def do_model(self, name: str) -> None:
        """Loads the model of that name or path; without one the picker opens."""
        screen = self._screen
        if name:
            self._refuse_load()
            await self._load(await asyncio.to_thread(screen.shelf.path_of, name))
            return

        from .screens.models import ModelsScreen

        async def load(path: Path | None) -> None:
            if path is not None:
                await self.told(self._load(path))

        current = Path(screen.model.path) if screen.model else None
        screen.app.push_screen(ModelsScreen(screen.shelf, current, screen.settings_file), load)

    async def do_open(self, path: str) -> None:
        """Loads a file, or the last one again."""
        await self._load(Path(path).expanduser() if path else None)

    async def _load(self, file: Path | None) -> None:
        self._refuse_load()
        if file is not None:  # what can be seen from here is said before the loaded model goes
            await asyncio.to_thread(_look_at, file)
            self._refuse_load()
        self._screen.load(file)

    def do_pull(self, text: str) -> None:
        """Fetches a model in the background; `/pull stop` ends that."""
        running = self._puller if self._puller is not None and not self._puller.ended else None
        if text.lower() == "stop":
            if running is None:
                raise UserError("Nothing is being fetched.")
            running.stop()
        elif running is not None:
            raise UserError(f"{running.text} is being fetched: /pull stop ends that.")
        elif not text:
            raise UserError("Say what to fetch: /pull OWNER/REPO:QUANT, such as a repository whose name ends in GGUF.")
        else:
            from .puller import Puller

            self._puller = Puller(text, models_dir())
            self._puller.start()
            self._show_pull(self._puller)

    def _show_pull(self, puller: Puller) -> None:
        """Shows how far it is, twice a second, until it has ended."""
        screen, progress = self._screen, puller.progress
        bar = screen.query_one("#pull", LoadBar)
        if not puller.ended:
            if progress is None:
                bar.show(LoadProgress(f"asking for {puller.text}", 0, 0))
            else:
                bar.show(LoadProgress(progress.stage, progress.done, progress.total))
            screen.set_timer(_PULL_SECONDS, lambda: self._show_pull(puller))
            return
        bar.hide()
        if puller.path is not None:
            screen.shelf.forget()
            screen.flash.say(f"Fetched: /model {puller.path} loads it.", stay=True)
        else:
            screen.flash.say(puller.error, error=True)

    def _refuse_load(self) -> None:
        if self._screen.turns.busy:
            raise UserError("A reply is running: esc stops it.")
        if self._screen.loader.loading:
            raise UserError("A model is loading: esc stops it.")

    def model_choices(self, typed: str) -> list[Choice]:
        """Completions of what follows /model."""
        if typed.startswith(("/", "~", ".")):
            return path_choices(typed, (".gguf",))
        return [Choice(name) for name in self._screen.shelf.names() if typed.lower() in name.lower()]


def _look_at(file: Path) -> None:
    """Raises UserError for what can be seen to be no model."""
    from ..engine.gguf_info import expert_groups, read_info  # as late as all that needs numpy

    expert_groups(read_info(file))
