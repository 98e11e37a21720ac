"""Writing files so that a reader sees the old text or the new one, never a part."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomic(path: Path, text: str | bytes) -> None:
    """Replaces `path` by a file with this text or these bytes; keeps an existing file's permissions. Raises OSError."""
    temp = _written_beside(path, text)
    try:
        if path.exists():
            os.chmod(temp, path.stat().st_mode & 0o7777)
        os.replace(temp, path)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise


def write_new(path: Path, text: str) -> Path:
    """Writes a new file, and never over an existing one: `name-2.md`, `name-3.md`, ... are tried.

    Returns the path written. Raises OSError.
    """
    temp = _written_beside(path, text)
    try:
        number = 1
        target = path
        while True:
            try:
                target.open("x").close()  # takes the name, in one step, or fails where a file exists
                break
            except FileExistsError:
                number += 1
                target = path.with_name(f"{path.stem}-{number}{path.suffix}")
        os.replace(temp, target)
        return target
    except BaseException:
        temp.unlink(missing_ok=True)
        raise


def _written_beside(path: Path, text: str | bytes) -> Path:
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(text.encode("utf-8") if isinstance(text, str) else text)
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)  # mkstemp's 0600 is for secrets
    except BaseException:
        os.unlink(name)
        raise
    return Path(name)
