"""A look at what a path is before it is opened."""

from __future__ import annotations

import stat
from pathlib import Path

from .errors import UserError


def check_regular(path: Path, what: str, instead: str) -> None:
    """Raises UserError for a pipe, a device or a socket: opening one may wait for ever, reading one never end.

    `what`: the path as the sentence begins with it; `instead`: what to name. A folder passes, for it cannot be
    opened anyway. Raises OSError as stat does.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UserError(f"{what} is not a regular file: {instead}.")
