"""KV snapshots as files: a line that says what is in it and how to check it, then the bytes, back to back.

The line is a CRC-32 of its rest, a blank, and JSON: what the snapshot fits (`identity`), the chat, and the sections
with their sizes and CRC-32s. A reader believes nothing that is not checked first.
"""

from __future__ import annotations

import json
import mmap
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .checkpoints import Checkpoint
from .llama_state import State

Tokens = NDArray[np.int32]
Identity = Mapping[str, object]  # plain JSON values

TEMPORARY = ".tmp"
_KIND, _VERSION = "strata-tui KV snapshot", 1
_LONGEST_LINE = 1 << 16
_PART = 16 << 20  # bytes checked or written before looking whether to stop
_STORED = np.dtype("<i4")
_CHECKPOINT = "checkpoint"
_ONCE = ("tokens", "last", "state", "heads", "carry")  # sections that every file has


class Stopped(Exception):
    """Writing was stopped on request."""


@dataclass(slots=True, eq=False)
class KvSnapshot:
    """One chat's sequence, as it was at the end of a reply. Nothing in it is changed but `used`."""

    chat: str
    tokens: Tokens  # what the memory held
    last: Tokens  # the last prompt and its reply, whose end the memory may not hold (see Prefix.last)
    state: State  # of the whole sequence
    heads: State  # of the NextN heads' context; empty: there is none that fits
    carry: State  # and the hidden row behind its last token
    checkpoints: tuple[Checkpoint, ...] = ()
    used: float = field(default_factory=time.time)  # when it was last of use; Unix time

    @property
    def nbytes(self) -> int:
        rest = sum(c.data.nbytes for c in self.checkpoints)
        return sum(a.nbytes for a in (self.tokens, self.last, self.state, self.heads, self.carry)) + rest


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """What a file says about the snapshot in it."""

    chat: str
    tokens: Tokens
    last: Tokens
    positions: tuple[int, ...]  # of its checkpoints
    nbytes: int  # of the file


def write(path: Path, snapshot: KvSnapshot, identity: Identity, stop: Callable[[], bool]) -> int:
    """Writes the file whole or not at all; its size. Raises OSError, and Stopped once `stop()` is true.

    Only its owner may read it. It is not flushed to the disk: what a power cut leaves fails its checks.
    """
    sections = [
        ("tokens", 0, _raw(snapshot.tokens.astype(_STORED))),
        ("last", 0, _raw(snapshot.last.astype(_STORED))),
        ("state", 0, snapshot.state),
        ("heads", 0, snapshot.heads),
        ("carry", 0, snapshot.carry),
        *((_CHECKPOINT, c.position, c.data) for c in snapshot.checkpoints),
    ]
    table = [[name, position, data.nbytes, _crc(data, stop)] for name, position, data in sections]
    head = {"kind": _KIND, "version": _VERSION, "identity": dict(identity), "chat": snapshot.chat, "sections": table}
    text = json.dumps(head).encode()
    line = b"%08x %s\n" % (zlib.crc32(text), text)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", suffix=TEMPORARY, dir=path.parent)  # 0600
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            _put(file, line)
            for _, _, data in sections:
                for part in _parts(data, stop):
                    _put(file, part)
        os.utime(name, (snapshot.used, snapshot.used))
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return len(line) + sum(data.nbytes for _, _, data in sections)


def read_head(path: Path, identity: Identity) -> Head:
    """What is in the file, without reading the states. Raises OSError, and ValueError which says what is wrong."""
    with path.open("rb") as file:
        return _Opened(file, identity).head


def read(path: Path, identity: Identity) -> KvSnapshot:
    """The snapshot, with every byte checked; its states are the mapped file. Raises as `read_head` does."""
    with path.open("rb") as file:
        found = _Opened(file, identity)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    mapped.madvise(mmap.MADV_SEQUENTIAL)
    whole = np.frombuffer(mapped, np.uint8)
    if whole.size != found.end:
        raise ValueError("it was changed while it was read")
    named: dict[str, State] = {}
    points: list[Checkpoint] = []
    for name, position, start, size, crc in found.sections:
        data = whole[start : start + size]
        if _crc(data) != crc:
            raise ValueError(f"it is damaged ({name})")
        if name == _CHECKPOINT:
            points.append(Checkpoint(position, data))
        else:
            named[name] = data
    head = found.head
    return KvSnapshot(head.chat, head.tokens, head.last, named["state"], named["heads"], named["carry"], tuple(points))


class _Opened:
    """A file's line, checked, and the tokens that follow it."""

    def __init__(self, file: BinaryIO, identity: Identity) -> None:
        line = file.readline(_LONGEST_LINE)
        crc, _, text = line.partition(b" ")
        if not line.endswith(b"\n") or crc != b"%08x" % zlib.crc32(text[:-1]):
            raise ValueError("its first line is damaged")
        said: Any = json.loads(text)
        if not isinstance(said, dict) or (said.get("kind"), said.get("version")) != (_KIND, _VERSION):
            raise ValueError("it is no KV snapshot of this version")
        if said["identity"] != dict(identity):
            raise ValueError("it was made with another model, or with other settings")
        self.sections: list[tuple[str, int, int, int, int]] = []  # name, position, start, bytes, CRC-32
        self.end = len(line)
        for name, position, size, checksum in said["sections"]:
            self.sections.append((name, position, self.end, size, checksum))
            self.end += size
        if sorted(name for name, *_ in self.sections if name != _CHECKPOINT) != sorted(_ONCE):
            raise ValueError("it holds other things than a KV snapshot")
        there = os.fstat(file.fileno()).st_size
        if there != self.end:
            raise ValueError(f"it has {there} bytes and should have {self.end}")
        positions = tuple(position for name, position, *_ in self.sections if name == _CHECKPOINT)
        tokens, last = (self._numbers(file, name) for name in ("tokens", "last"))
        self.head = Head(said["chat"], tokens, last, positions, there)

    def _numbers(self, file: BinaryIO, wanted: str) -> Tokens:
        start, size, crc = next((s, n, c) for name, _, s, n, c in self.sections if name == wanted)
        file.seek(start)
        raw = file.read(size)
        if zlib.crc32(raw) != crc:
            raise ValueError(f"it is damaged ({wanted})")
        return np.frombuffer(raw, _STORED).astype(np.int32)


def _raw(values: NDArray[Any]) -> State:
    return np.ascontiguousarray(values).view(np.uint8)


def _parts(data: State, stop: Callable[[], bool]) -> Iterator[memoryview]:
    whole = data.data
    for start in range(0, len(whole), _PART):
        if stop():
            raise Stopped
        yield whole[start : start + _PART]


def _crc(data: State, stop: Callable[[], bool] = lambda: False) -> int:
    crc = 0
    for part in _parts(data, stop):
        crc = zlib.crc32(part, crc)
    return crc


def _put(file: BinaryIO, data: bytes | memoryview) -> None:
    """All of it: a write without a buffer may take only a part."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
