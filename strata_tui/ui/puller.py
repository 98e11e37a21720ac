"""Fetching a model while the chat goes on, on a thread of its own that ends with the program."""

from __future__ import annotations

import threading
from pathlib import Path

from ..catalog.hub import Hub, parse_target
from ..catalog.pull import Progress, Pull, Stopped
from ..errors import UserError


class Puller:
    """At most one at a time. `progress`, `path` and `error` are set by its thread and read by the screen."""

    def __init__(self, text: str, folder: Path, hub: Hub | None = None) -> None:
        """Raises UserError for what is no repository; the network is not asked yet."""
        self.text = text
        self._target = parse_target(text)
        self._folder = folder
        self._hub = hub or Hub()
        self._stop = threading.Event()
        self.progress: Progress | None = None
        self.path: Path | None = None
        self.error = ""
        self.ended = False
        self._thread = threading.Thread(target=self._run, name="pull", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Asks for the end; what was fetched is kept."""
        self._stop.set()

    def _run(self) -> None:
        try:
            model = self._hub.find(self._target)
            self.path = Pull(self._hub, model, self._folder, self._tell, self._stop.is_set).run()
        except Stopped:
            self.error = f"Stopped; /pull {self.text} goes on from there."
        except UserError as error:
            self.error = str(error)
        except Exception as error:  # the library's own faults
            self.error = f"{self.text} was not fetched: {type(error).__name__}: {' '.join(str(error).split())}."
        self.ended = True

    def _tell(self, progress: Progress) -> None:
        self.progress = progress
