"""Reads one GGUF file's header in plain Python: metadata and the table of tensors, no tensor data.

Every way in which a file can be wrong becomes one UserError; llama.cpp itself prints several lines or aborts.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gguf.constants import GGML_QUANT_SIZES

from ..errors import UserError
from .gguf_file import open_gguf

Scalar = int | float | bool | str

# tensor types of llama.cpp that are newer than some release of gguf: number -> name, (elements, bytes) of one block
_NEWER = {40: ("NVFP4", (64, 36)), 41: ("Q1_0", (128, 18)), 42: ("Q2_0", (64, 18))}
TYPE_NAMES: dict[int, str] = {n: name for n, (name, _) in _NEWER.items()} | {int(t): t.name for t in GGML_QUANT_SIZES}
BLOCK_SIZES: dict[int, tuple[int, int]] = {n: size for n, (_, size) in _NEWER.items()} | {
    int(t): size for t, size in GGML_QUANT_SIZES.items()
}

# GGUF value types: number -> struct format
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_HEADER = 1 << 30  # bytes; the largest vocabularies take about 20 MB
_KEPT_ARRAY = 1024  # numeric arrays up to this length keep their values (per-layer settings)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor. `file_offset` is absolute in its shard; `dims` starts with ne0 (the row length)."""

    name: str
    shard: int
    file_offset: int
    ggml_type: int
    dims: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """A metadata array: GGUF type number of its elements, and how many; `values` only of short numeric ones."""

    element_type: int
    length: int
    values: tuple[int | float | bool, ...] | None = None


@dataclass(slots=True)
class Header:
    """One file's header, as parsed."""

    path: Path
    file_bytes: int
    version: int
    metadata: dict[str, Scalar]
    arrays: dict[str, ArrayInfo]
    records: list[tuple[str, bytes]]  # each key-value pair as it stands in the file
    entries: list[tuple[str, tuple[int, ...], int, int]]  # tensors: name, dims, type, offset in the data
    data_start: int
    alignment: int

    def tensors(self, shard: int) -> Iterator[TensorInfo]:
        """The tensors, checked: known types, offsets as GGUF demands them, all data there."""
        expected = end = 0
        for name, dims, ggml_type, offset in self.entries:
            if ggml_type not in BLOCK_SIZES:
                raise UserError(f"{self.path}: {name} is of tensor type {ggml_type}, which this version does not know.")
            elements, size = BLOCK_SIZES[ggml_type]
            if not dims or dims[0] % elements or offset != expected:
                raise UserError(f"{self.path} is damaged: the shape or place of {name} is impossible.")
            nbytes = dims[0] // elements * size
            for n in dims[1:]:
                nbytes *= n
            expected += nbytes + -nbytes % self.alignment
            end = self.data_start + offset + nbytes
            yield TensorInfo(name, shard, self.data_start + offset, ggml_type, dims, nbytes)
        if end > self.file_bytes:
            raise UserError(
                f"{self.path} is cut short: {end - self.file_bytes:,} bytes of tensor data are missing; "
                "download it again."
            )


class _Reader:
    """Reads a header from the file's start, which grows in memory as needed. Little-endian."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = open_gguf(path)
        self.file_bytes = os.fstat(self.file.fileno()).st_size
        self.buffer = self.file.read(1 << 20)
        self.position = 0

    def need(self, end: int) -> None:
        """Makes bytes up to `end` available."""
        if end <= len(self.buffer):
            return
        if end > self.file_bytes:
            raise UserError(f"{self.path} is cut short: the file ends inside its header; download it again.")
        if end > _MAX_HEADER:
            raise UserError(f"{self.path} is damaged: its header claims to be larger than {_MAX_HEADER >> 20} MiB.")
        self.buffer += self.file.read(max(end, min(2 * len(self.buffer), _MAX_HEADER)) - len(self.buffer))
        if end > len(self.buffer):
            raise UserError(f"{self.path} is cut short: the file ends inside its header; download it again.")

    def unpack(self, form: str) -> tuple[int | float | bool, ...]:
        size = struct.calcsize("<" + form)
        self.need(self.position + size)
        values = struct.unpack_from("<" + form, self.buffer, self.position)
        self.position += size
        return values

    def integer(self, form: str) -> int:
        return int(self.unpack(form)[0])

    def string(self) -> str:
        length = self.integer("Q")
        self.need(self.position + length)
        text = self.buffer[self.position : self.position + length].decode("utf-8", "replace")
        self.position += length
        return text

    def skip_strings(self, count: int) -> None:
        """Skips `count` strings; the loop is what a vocabulary's header costs, so it stays bare."""
        unpack: Callable[[bytes, int], tuple[int]] = struct.Struct("<Q").unpack_from
        buffer, position = self.buffer, self.position
        for _ in range(count):
            try:
                position += 8 + unpack(buffer, position)[0]
            except (struct.error, IndexError, OverflowError):  # past what has been read, or a nonsense length
                self.need(position + 8)
                buffer = self.buffer
                position += 8 + unpack(buffer, position)[0]
        self.need(position)
        self.position = position

    def array(self) -> ArrayInfo:
        element, count = self.integer("I"), self.integer("Q")
        if element == _STRING:
            self.skip_strings(count)
            return ArrayInfo(element, count)
        if element not in _FORMATS:
            raise UserError(f"{self.path} is damaged: its metadata holds a value of the unknown type {element}.")
        if count <= _KEPT_ARRAY:
            return ArrayInfo(element, count, self.unpack(f"{count}{_FORMATS[element]}"))
        end = self.position + count * struct.calcsize("<" + _FORMATS[element])
        self.need(end)
        self.position = end
        return ArrayInfo(element, count)


def parse_header(path: Path) -> Header:
    reader = _Reader(path)
    with reader.file:
        return _parse(reader)


def _parse(reader: _Reader) -> Header:
    path = reader.path
    reader.position = 4  # after the letters GGUF
    version = reader.integer("I")
    if version & 0xFFFF == 0:
        raise UserError(f"{path} is a big-endian GGUF; this machine needs a little-endian one.")
    if version not in (2, 3):
        raise UserError(f"{path} is GGUF version {version}; versions 2 and 3 are supported.")
    n_tensors, n_records = reader.integer("Q"), reader.integer("Q")

    metadata: dict[str, Scalar] = {}
    arrays: dict[str, ArrayInfo] = {}
    records: list[tuple[str, bytes]] = []
    for _ in range(n_records):
        start = reader.position
        key, kind = reader.string(), reader.integer("I")
        if kind == _STRING:
            metadata[key] = reader.string()
        elif kind == _ARRAY:
            arrays[key] = reader.array()
        elif kind in _FORMATS:
            metadata[key] = reader.unpack(_FORMATS[kind])[0]
        else:
            raise UserError(f"{path} is damaged: the metadata {key!r} is of the unknown type {kind}.")
        records.append((key, reader.buffer[start : reader.position]))

    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise UserError(f"{path} is damaged: its alignment is {alignment}, not a power of two.")

    entries: list[tuple[str, tuple[int, ...], int, int]] = []
    for _ in range(n_tensors):
        name, n_dims = reader.string(), reader.integer("I")
        if n_dims > 4:
            raise UserError(f"{path} is damaged: the tensor {name!r} has {n_dims} dimensions.")
        dims = tuple(int(n) for n in reader.unpack(f"{n_dims}Q"))
        entries.append((name, dims, reader.integer("I"), reader.integer("Q")))
    data_start = reader.position + -reader.position % alignment
    return Header(path, reader.file_bytes, version, metadata, arrays, records, entries, data_start, alignment)
