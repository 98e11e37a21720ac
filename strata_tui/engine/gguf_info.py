"""What a GGUF is, before anything native opens it.

`read_info` parses the header of one file or of every shard of a split set; no tensor data is read.
From its result come the expert groups that the tier owns, the regex that sends those tensors to the
tier's buffer type, and the virtual single file through which llama.cpp reads everything else.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gguf.constants import LlamaFileType

from ..errors import UserError
from .gguf_header import TYPE_NAMES, ArrayInfo, Header, Scalar, TensorInfo, parse_header

if TYPE_CHECKING:
    from ._core import Group, Segment

_SHARD_NAME = re.compile(r"^(?P<stem>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf$")
_EXPERT_NAME = re.compile(r"blk\.(?P<layer>\d+)\.(?P<role>\w+)_(?P<family>exps|chexps)\.weight")


@dataclass(frozen=True, slots=True)
class GgufInfo:
    """A model's header. Sizes in bytes; `None` is a value that the file does not state."""

    path: Path  # as given
    shards: tuple[Path, ...]
    name: str
    architecture: str
    quantization: str
    file_bytes: int  # of all shards
    trunk_bytes: int  # of tensors that are no experts
    expert_bytes: int
    n_layers: int
    n_experts: int  # most in any layer; 0: a dense model
    n_experts_used: int  # most in any layer
    context_trained: int | None
    n_vocab: int | None
    alignment: int
    metadata: dict[str, Scalar] = field(repr=False)
    arrays: dict[str, ArrayInfo] = field(repr=False)
    tensors: tuple[TensorInfo, ...] = field(repr=False)

    def per_layer(self, key: str, layer: int) -> Scalar | None:
        """Value of "<architecture>.<key>" for a layer, whether the file holds one number or an array."""
        full = f"{self.architecture}.{key}"
        array = self.arrays.get(full)
        if array is None:
            return self.metadata.get(full)
        return array.values[layer] if array.values is not None and layer < array.length else None

    @property
    def expert_tensors(self) -> list[TensorInfo]:
        return [t for t in self.tensors if _expert_match(t)]


def read_info(path: str | Path) -> GgufInfo:
    """Reads the header of a GGUF, or of all shards when `path` is any shard of a split set.

    Raises UserError when something is missing, damaged or not a model.
    """
    path = Path(path).expanduser()
    given = parse_header(path)
    shards = _shard_paths(path, given)
    headers = [given if p == path else parse_header(p) for p in shards]
    for i, header in enumerate(headers):
        if len(headers) > 1 and header.metadata.get("split.no") != i:
            raise UserError(f"{header.path} says it is shard {header.metadata.get('split.no')}, but its name says {i}.")

    first = headers[0]
    architecture = first.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise UserError(f"{shards[0]} names no model architecture: it is a GGUF, but not a language model.")
    tensors = [t for i, header in enumerate(headers) for t in header.tensors(i)]
    _check_tensor_set(first, tensors)
    experts = [t for t in tensors if _expert_match(t)]
    expert_bytes = sum(t.nbytes for t in experts)

    def number(key: str) -> int | None:
        value = first.metadata.get(f"{architecture}.{key}")
        return value if isinstance(value, int) else None

    used = first.arrays.get(f"{architecture}.expert_used_count")
    vocabulary = first.arrays.get("tokenizer.ggml.tokens")
    return GgufInfo(
        path=path,
        shards=tuple(shards),
        name=str(first.metadata.get("general.name") or _stem(shards[0])),
        architecture=architecture,
        quantization=_quantization(first.metadata, tensors),
        file_bytes=sum(h.file_bytes for h in headers),
        trunk_bytes=sum(t.nbytes for t in tensors) - expert_bytes,
        expert_bytes=expert_bytes,
        n_layers=number("block_count") or 0,
        n_experts=max((t.dims[2] for t in experts), default=0),
        n_experts_used=int(max(used.values or (0,))) if used else number("expert_used_count") or 0,
        context_trained=number("context_length"),
        n_vocab=vocabulary.length if vocabulary else number("vocab_size"),
        alignment=first.alignment,
        metadata=first.metadata,
        arrays=first.arrays,
        tensors=tuple(tensors),
    )


def expert_groups(info: GgufInfo) -> list[Group]:
    """One group per layer and family of experts: (layer, experts, used experts, slices in file order)."""
    found: dict[tuple[int, str], list[TensorInfo]] = {}
    for tensor in info.tensors:
        match = _expert_match(tensor)
        if match:
            found.setdefault((int(match["layer"]), match["family"]), []).append(tensor)
    groups: list[Group] = []
    for (layer, family), tensors in sorted(found.items()):
        n = tensors[0].dims[2]
        odd = next((t for t in tensors if t.dims[2] != n), None)
        if odd:
            raise UserError(f"{info.path} is damaged: {odd.name} has {odd.dims[2]} experts, {tensors[0].name} has {n}.")
        used = info.per_layer("expert_used_count", layer)
        if not isinstance(used, int) or used < 1:
            raise UserError(
                f"{info.path} does not say how many of the {n} experts of layer {layer} ({family}) a token uses: it "
                f"has no {info.architecture}.expert_used_count, so {info.architecture!r} is no architecture known "
                f"here, or the file is damaged."
            )
        slices = [(t.name, t.shard, t.file_offset, t.ggml_type, t.dims[0], t.dims[1]) for t in tensors]
        groups.append((layer, n, min(used, n), slices))
    return groups


def override_pattern(info: GgufInfo) -> str:
    """A std::regex (ECMAScript, regex_search) that matches the expert tensors' names and no other tensor's."""
    names = {t.name for t in info.expert_tensors}
    if not names:
        return "^$"
    kinds = "|".join(sorted({n.split(".")[2] for n in names}))
    pattern = rf"^blk\.[0-9]+\.({kinds})\.weight$"
    if all(t.name in names for t in info.tensors if re.search(pattern, t.name)):
        return pattern
    return "^(" + "|".join(sorted(n.replace(".", r"\.") for n in names)) + ")$"


def load_segments(info: GgufInfo) -> list[Segment]:
    """The virtual single file that llama.cpp reads: headers and trunk, with the experts' bytes skipped.

    One segment per tensor, because the reader never reads past a segment's end. For one shard, its own
    bytes. For several, one merged header (shard 1's metadata without the split keys, offsets rebased)
    and then every shard's tensors, each padded to the alignment.
    """
    segments: list[Segment] = []
    if len(info.shards) == 1:
        position = 0
        for t in sorted(info.tensors, key=lambda t: t.file_offset):
            if t.file_offset > position:
                segments.append((t.file_offset - position, (0, position)))
            segments.append((t.nbytes, None if _expert_match(t) else (0, t.file_offset)))
            position = t.file_offset + t.nbytes
        if position < info.file_bytes:
            segments.append((info.file_bytes - position, (0, position)))
        return segments

    header = _merged_header(info)
    segments.append((len(header), header))
    for t in info.tensors:
        segments.append((t.nbytes, None if _expert_match(t) else (t.shard, t.file_offset)))
        pad = -t.nbytes % info.alignment
        if pad:
            segments.append((pad, bytes(pad)))
    return segments


def _merged_header(info: GgufInfo) -> bytes:
    first = parse_header(info.shards[0])
    kept = [record for key, record in first.records if not key.startswith("split.")]
    parts = [b"GGUF", struct.pack("<IQQ", first.version, len(info.tensors), len(kept)), *kept]
    offset = 0
    for t in info.tensors:
        name = t.name.encode()
        parts.append(struct.pack("<Q", len(name)) + name)
        parts.append(struct.pack(f"<I{len(t.dims)}QIQ", len(t.dims), *t.dims, t.ggml_type, offset))
        offset += t.nbytes + -t.nbytes % info.alignment
    header = b"".join(parts)
    return header + bytes(-len(header) % info.alignment)


def _expert_match(tensor: TensorInfo) -> re.Match[str] | None:
    # biases and scales of experts, and norms named ..._exps, are small and stay with the trunk
    return _EXPERT_NAME.fullmatch(tensor.name) if len(tensor.dims) == 3 else None


def _quantization(metadata: dict[str, Scalar], tensors: list[TensorInfo]) -> str:
    file_type = metadata.get("general.file_type")
    if isinstance(file_type, int):
        try:
            return LlamaFileType(file_type & ~LlamaFileType.GUESSED).name.removeprefix("ALL_").removeprefix("MOSTLY_")
        except ValueError:
            pass  # newer than gguf's table: say what most bytes are
    bytes_of: Counter[int] = Counter()
    for t in tensors:
        bytes_of[t.ggml_type] += t.nbytes
    return TYPE_NAMES[bytes_of.most_common(1)[0][0]]


def _stem(path: Path) -> str:
    match = _SHARD_NAME.match(path.name)
    return match["stem"] if match else path.stem


def _shard_paths(path: Path, header: Header) -> list[Path]:
    count = header.metadata.get("split.count", 1)
    if not isinstance(count, int) or count <= 1:
        return [path]
    match = _SHARD_NAME.match(path.name)
    if not match or int(match["count"]) != count:
        raise UserError(
            f"{path} is one of {count} shards of a split model, so its name must end in -00001-of-{count:05}.gguf "
            "(with its own number): rename the shards as they were published."
        )
    shards = [path.with_name(f"{match['stem']}-{i + 1:05}-of-{count:05}.gguf") for i in range(count)]
    for i, shard in enumerate(shards):
        if not shard.exists():
            raise UserError(f"{shard} is missing: it is shard {i + 1} of {count}; put it beside {path.name}.")
    return shards


def _check_tensor_set(first: Header, tensors: list[TensorInfo]) -> None:
    if not tensors:
        raise UserError(f"{first.path} holds no tensors (a vocabulary only): open the model itself.")
    name, times = Counter(t.name for t in tensors).most_common(1)[0]
    if times > 1:
        raise UserError(f"{first.path} is damaged: the tensor {name} is there {times} times.")
    expected = first.metadata.get("split.tensors.count", len(tensors))
    if first.metadata.get("split.count", 1) != 1 and expected != len(tensors):
        raise UserError(
            f"{first.path} promises {expected} tensors, but its shards hold {len(tensors)}: "
            "they do not belong together."
        )
