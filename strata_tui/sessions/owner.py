"""Which running program writes a reply, and whether it is still alive.

Each open store holds a lock on a small file of its own. The kernel drops the lock when the process
ends, however it ends, so a file that can be locked belongs to nobody; process numbers that are used
again, or that come from another container, do not matter.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from pathlib import Path


class Owner:
    """This program's claim. `token` names it in the database."""

    def __init__(self, folder: Path) -> None:
        """Takes the lock. Raises OSError where the folder cannot be written or locked."""
        folder.mkdir(exist_ok=True)
        self.token = uuid.uuid4().hex
        self._path = folder / self.token
        while True:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX)
                # between open and lock another program may have taken the file for a dead one's
                if self._path.exists() and os.path.samestat(os.fstat(self._handle), self._path.stat()):
                    return
            except BaseException:
                os.close(self._handle)
                raise
            os.close(self._handle)

    def release(self) -> None:
        """Gives the claim up. A second call does nothing."""
        if self._handle >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = -1


def is_alive(folder: Path, token: str) -> bool:
    """Whether the owner of `token` still runs. Removes what a dead one left."""
    path = folder / token
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        path.unlink(missing_ok=True)
        return False
    finally:
        os.close(handle)
