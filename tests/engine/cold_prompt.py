"""A prompt whose file leaves the page cache half-way; also to be run by a user who does not own the file.

As a program: `cold_prompt.py MODEL [UID]` prints one line of JSON, the fields of `Told`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

BATCHES, BATCH, SLOTS = 8, 16, 8  # few slots, so that every batch reads nearly all experts
DROPPED = 3  # before the batch of this number, from 0 on


@dataclass(frozen=True)
class Told:
    logits: str  # a hash of all
    profiles: list[str]  # of the stager, after each batch
    cold: float | None  # share of the file's sampled pages in the page cache after it was dropped
    writable: bool  # the file, by whoever ran this


def read_prompt(path: Path, drop: bool) -> Told:
    """`drop`: the file leaves the page cache before one of the batches."""
    from strata_tui.bench.page_cache import cached_share
    from strata_tui.engine import native
    from strata_tui.engine.llama import LowLevel

    core = native.load()
    digest, profiles, cold = hashlib.sha256(), [], None
    path.read_bytes()
    with LowLevel(path, slots=SLOTS, context=BATCHES * BATCH + 8, batch=BATCH) as model:
        tier = model.tier
        assert tier is not None
        tier.set_phase(core.PHASE_PROMPT)
        for i in range(BATCHES):
            if drop and i == DROPPED:
                handle = os.open(path, os.O_RDONLY)
                os.fsync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(handle)
                cold = cached_share([path])
            tokens = [7 + (31 * (i * BATCH + k)) % 300 for k in range(BATCH)]
            digest.update(model.decode(tokens, all_logits=True).tobytes())
            profiles.append({core.STAGER_RAM: "ram", core.STAGER_SSD: "ssd"}[tier.stager()["profile"]])
    return Told(digest.hexdigest(), profiles, cold, os.access(path, os.W_OK))


def main(arguments: Sequence[str]) -> None:
    path = Path(arguments[0])
    if len(arguments) > 1:
        read_prompt(path, drop=False)  # loads all modules, which the other user may not be allowed to read
        os.setgroups([])
        os.setgid(int(arguments[1]))
        os.setuid(int(arguments[1]))
    print(json.dumps(asdict(read_prompt(path, drop=True))))


if __name__ == "__main__":
    main(sys.argv[1:])
