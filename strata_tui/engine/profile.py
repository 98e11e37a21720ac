"""A model's usage profile: how often each expert was picked, kept between starts so that slots can be pre-filled.

A file holds one line of JSON, then one float32 (little-endian) for each expert in the order of the groups.
It can always be made again: what is broken or belongs to another model is ignored, and the log says so.
"""

from __future__ import annotations

import hashlib
import json
import struct
import time
import zlib
from logging import Logger
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..atomic import write_atomic
from .gguf_info import GgufInfo

SAVE_SECONDS = 30.0  # least time between two writes while the model is open
KEPT = np.float32(0.5)  # share of the earlier usage that a new start keeps, so that the profile follows use
_KIND, _VERSION = "strata-tui usage profile", 1
_STORED = np.dtype("<f4")

Usage = NDArray[np.float32]  # one value for each expert


def model_key(info: GgufInfo) -> str:
    """Names a model by its shards' headers (metadata and tensor tables) and sizes; no tensor data is read.

    Raises OSError.
    """
    digest = hashlib.blake2b(digest_size=16)
    for number, shard in enumerate(info.shards):
        size = shard.stat().st_size
        end = min((t.file_offset for t in info.tensors if t.shard == number), default=size)
        with shard.open("rb") as file:
            header = file.read(end)
        digest.update(struct.pack("<QQ", size, len(header)))
        digest.update(header)
    return digest.hexdigest()


class UsageProfile:
    """One model's profile in `folder`. Errors of the disk are logged and change nothing else."""

    def __init__(self, folder: Path, key: str, name: str, n_experts: int, log: Logger) -> None:
        self.path = folder / f"{key}.profile"
        self._key, self._name, self._n, self._log = key, name, n_experts, log
        self._usage: Usage = np.zeros(n_experts, np.float32)
        self._changed = False
        self._saved = -SAVE_SECONDS

    def read(self) -> bytes | None:
        """The earlier usage, cut to the share that is kept, as the tier takes it; None when there is none."""
        try:
            usage = _parse(self.path.read_bytes(), self._key, self._n)
        except FileNotFoundError:
            self._log.info("profile: none yet")
            return None
        except (OSError, ValueError) as error:
            self._log.warning("profile: %s is ignored: %s", self.path, error)
            return None
        self._usage = usage * KEPT
        self._log.info("profile: read from %s", self.path)
        return self._usage.tobytes()

    def note(self, usage: bytes) -> None:
        """Takes the tier's usage, which began with what `read` returned; writes it when the last time is long ago.

        Usage decays while the tier adapts, and what was seen before must not be lost by that: the larger counts.
        """
        self._usage = np.maximum(self._usage, np.frombuffer(usage, np.float32))
        self._changed = True
        if time.monotonic() - self._saved >= SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Writes what has not been written yet."""
        if not self._changed:
            return
        self._changed, self._saved = False, time.monotonic()
        values = self._usage.astype(_STORED).tobytes()
        head = {"kind": _KIND, "version": _VERSION, "model": self._key, "name": self._name, "experts": self._n}
        line = json.dumps(head | {"crc32": zlib.crc32(values)}).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.path, line + values)
        except OSError as error:
            self._log.warning("profile: %s cannot be written: %s", self.path, error)


def _parse(raw: bytes, key: str, n_experts: int) -> Usage:
    """Raises ValueError, which says what is wrong."""
    line, _, values = raw.partition(b"\n")
    head = json.loads(line.decode("utf-8"))  # both errors are ValueErrors
    if not isinstance(head, dict) or (head.get("kind"), head.get("version")) != (_KIND, _VERSION):
        raise ValueError("it is no usage profile of this version")
    if (head.get("model"), head.get("experts")) != (key, n_experts):
        raise ValueError("it belongs to another model")
    if len(values) != n_experts * _STORED.itemsize or head.get("crc32") != zlib.crc32(values):
        raise ValueError("it is damaged")
    usage = np.frombuffer(values, _STORED).astype(np.float32)
    if not (np.isfinite(usage).all() and (usage >= 0).all()):
        raise ValueError("it holds impossible numbers")
    return usage
