"""Files in the page cache and out of it, by asking the bytes: a read that may not wait fails where it would have to.

Dropping needs no rights beyond reading. Pages stay that any process has mapped, that are being read, or that are not
written yet; so `make_cold` looks afterwards, and says so when the file is not cold.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError

SAMPLES = 256  # most of them
DISTANCE = 256 << 10  # bytes from one to the next, about, at least
COLD = 0.01  # most samples that may be in the page cache
WARM = 0.99  # least
_TRIES = 20


def cached_share(files: Sequence[Path]) -> float | None:
    """Share of sampled pages that are in the page cache; None where the file system does not say.

    Asking for a page may bring it and its neighbours in, so samples lie far from each other, elsewhere each time.
    """
    sizes = [file.stat().st_size for file in files]
    samples = max(1, min(SAMPLES, sum(sizes) // DISTANCE))
    handles = [os.open(file, os.O_RDONLY) for file in files]
    hits = 0
    try:
        for handle in handles:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
        for k in range(samples):
            at, i = int((k + random.random()) / samples * sum(sizes)), 0
            while at >= sizes[i]:
                at -= sizes[i]
                i += 1
            try:
                hits += os.preadv(handles[i], [bytearray(1)], at, os.RWF_NOWAIT)
            except BlockingIOError:
                pass
            except OSError as error:
                if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    return None
                raise
    finally:
        for handle in handles:
            os.close(handle)
    return hits / samples


def make_cold(files: Sequence[Path]) -> None:
    """Drops the files from the page cache. Raises UserError when they are not cold afterwards, or nobody knows."""
    share: float | None = 1.0
    for _ in range(_TRIES):
        for file in files:
            handle = os.open(file, os.O_RDONLY)
            try:
                os.fsync(handle)  # what is not written yet would stay
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)
        share = cached_share(files)
        if share is None:
            raise UserError(f"The file system of {files[0]} does not say what the page cache holds: use --cache warm.")
        if share <= COLD:
            return
        time.sleep(0.05)  # pages that are being read stay, for a moment
    raise UserError(
        f"{files[0]} is not cold: {share:.0%} of its sampled pages stay in the page cache, because another program "
        "has it mapped or its file system keeps its bytes in memory; close that program, or use --cache warm."
    )


def make_warm(files: Sequence[Path]) -> None:
    """Reads the files. Raises UserError when they do not stay in the page cache."""
    for file in files:
        with file.open("rb", buffering=0) as stream:
            while stream.read(16 << 20):
                pass
    share = cached_share(files)
    if share is not None and share < WARM:
        size = sum(file.stat().st_size for file in files)
        raise UserError(
            f"{files[0]} is not warm: only {share:.0%} of its {size / 2**30:.1f} GiB stay in the page cache; free "
            "memory, or use --cache cold."
        )
