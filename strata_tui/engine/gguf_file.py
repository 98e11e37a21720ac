"""Opens a model file after a look at what it is. Light, so that commands can ask before they import the engine."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import BinaryIO

from ..errors import UserError
from ..regular import check_regular


def open_gguf(path: Path) -> BinaryIO:
    """The file, at its start, when it begins like a GGUF. Raises UserError."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UserError(f"{path} is a folder: name a .gguf file; `strata-tui models {path}` lists them.")
        check_regular(path, str(path), "name a .gguf file on a disk")
        stream = path.open("rb")
        try:
            magic = stream.read(4)
            if magic != b"GGUF":
                raise UserError(f"{path} is not a GGUF file: it does not begin with GGUF.")
            stream.seek(0)
        except BaseException:
            stream.close()
            raise
    except FileNotFoundError as error:
        raise UserError(f"There is no model file {path}; `strata-tui models` lists those it finds.") from error
    except OSError as error:
        raise UserError(f"The model file {path} cannot be read: {error.strerror}.") from error
    return stream
