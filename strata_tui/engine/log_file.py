"""The engine's log file. One that cannot be written ends nothing: that is told once, and lines are lost."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path

from ..errors import UserError

LOG_BYTES = 4 << 20  # of one log file; one older is kept


class LogFile(RotatingFileHandler):
    """Opens the file anew after each failure, so that lines are written again once they can be.

    `tell` gets one sentence at the first failure, on the thread that logs. Raises UserError when the file cannot be
    opened.
    """

    def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            super().__init__(path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"The log {path} cannot be written ({error.strerror}): choose another place for it."
            ) from error
        self._path = path
        self._tell = tell
        self._told = False
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))

    def handleError(self, record: logging.LogRecord) -> None:
        """Called with the lock held while an exception is handled."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        stream, self.stream = self.stream, None  # emit opens it then
        if stream is not None:
            with contextlib.suppress(OSError):  # what it holds cannot be written either
                stream.close()
        if not self._told:
            self._told = True
            self._tell(
                f"The log {self._path} cannot be written ({error.strerror}), and its lines are lost: "
                "choose another place for it with --log."
            )

    def close(self) -> None:
        """Closes the file; what it could not take is lost, as was told."""
        with contextlib.suppress(OSError):
            super().close()
