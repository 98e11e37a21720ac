"""Makes the demo model on first use, once for all processes, and never leaves a half-written one."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..config import cache_dir
from ..errors import UserError
from .head_data import head_bytes, read_head
from .router_data import load_routers, routers_bytes
from .source import source_model
from .upcycle import write_demo_model

_FORMAT = 5  # raise when the writer changes what it writes
_NEEDED_BYTES = 600 << 20


def demo_model_path() -> Path:
    """Where this version's demo model is, or will be. Another version of it has another name."""
    digest = hashlib.sha256(routers_bytes() + head_bytes()).hexdigest()[:8]
    return cache_dir() / f"strata-demo-{_FORMAT}-{digest}.gguf"


def ensure_demo_model(progress: Callable[[int, int], None] | None = None) -> Path:
    """The demo model, made if it is not there yet. `progress(bytes written, bytes in all)` while it is made.

    Raises UserError. An exception out of `progress` stops the work and leaves nothing behind.
    """
    path = demo_model_path()
    try:
        if _is_whole(path):
            return path
        source = source_model()
        path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(path.with_suffix(".lock")):
            if not _is_whole(path):  # another process may have made it while this one waited
                _build(source, path, progress)
    except OSError as error:
        raise UserError(f"The demo model cannot be written to {path.parent}: {error.strerror or error}.") from error
    return path


def _is_whole(path: Path) -> bool:
    if not path.exists():
        return False
    from ..engine.gguf_info import read_info  # late: it takes numpy, and the screen imports this file

    try:
        read_info(path)
    except UserError:
        return False  # damaged since; it can be made again
    return True


def _build(source: Path, path: Path, progress: Callable[[int, int], None] | None) -> None:
    free = shutil.disk_usage(path.parent).free
    if free < _NEEDED_BYTES:
        raise UserError(
            f"The demo model needs {_NEEDED_BYTES >> 20} MiB in {path.parent}, where {free >> 20} MiB are free: "
            "make room, or set STRATA_TUI_CACHE to another folder."
        )
    part = path.with_suffix(".part")  # under the lock, one name is enough; a killed build's rest is overwritten
    try:
        write_demo_model(source, part, load_routers(), progress, read_head(head_bytes()))
        with part.open("rb") as stream:
            os.fsync(stream.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process at a time; the others sleep. The file stays: removing it would make two locks of one name."""
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
