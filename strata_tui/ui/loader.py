"""Loading a model: the demo model is made first where it is missing. Nothing here blocks the UI thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from ..engine.engine import Engine
from ..engine.events import Event, LoadFailed, LoadProgress
from ..errors import UserError


class _Stopped(Exception):
    """The making of the demo model was stopped."""


class Loader:
    """At most one load at a time; `tell` gets events of the part that is done before the engine's own."""

    def __init__(self, engine: Engine, path: Path | None, tell: Callable[[Event], None]) -> None:
        self._engine = engine
        self._path = path
        self._context: int | None = None  # tokens, in place of the settings'
        self._good: tuple[Path | None, int | None] = path, None
        self._tell = tell
        self._stop = threading.Event()
        self.loading = False

    def begin(self, path: Path | None, context: int | None = None) -> None:
        """Chooses the file; None: the last one, or the demo model. `load` must follow.

        `context`: tokens, in place of the settings'; the last file keeps those it was given.
        """
        if path is not None or context is not None:
            self._context = context
        self._path = path or self._path
        self._stop.clear()
        self.loading = True
        self._tell(LoadProgress("opening " + (self._path.name if self._path else "the demo model"), 0, 0))

    async def load(self) -> None:
        """Has the engine open the file; ends before that is done. What goes wrong is told as an event."""
        try:
            file = self._path
            if file is None:
                from ..demo.build import ensure_demo_model  # late: what makes a model takes numpy

                file = await asyncio.to_thread(ensure_demo_model, self._progress)
            self._engine.open(file, context=self._context)
        except UserError as error:
            self._tell(LoadFailed(str(error)))
        except _Stopped:
            self._tell(LoadFailed("The demo model was not made.", cancelled=True))

    def stop(self) -> bool:
        """Asks for the load to stop; false when there is none."""
        if self.loading:
            self._stop.set()
            self._engine.cancel_load()
        return self.loading

    def ended(self, good: bool, stopped: bool = False) -> None:
        """The engine has said that the load is over; after a bad one the last file that loaded is the one again.

        `stopped`: the person stopped it, and may want it yet.
        """
        self.loading = False
        if good:
            self._good = self._path, self._context
        elif not stopped:
            self._path, self._context = self._good

    def _progress(self, done: int, total: int) -> None:
        # on the thread that writes the demo model
        if self._stop.is_set():
            raise _Stopped
        self._tell(LoadProgress("making the demo model", done, total))
