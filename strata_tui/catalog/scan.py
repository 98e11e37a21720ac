"""Finds the models in places, and reads what they are."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..engine.gguf_info import GgufInfo, expert_groups, read_info
from ..errors import UserError
from .ollama import ollama_models
from .places import Kind, Place

_LATER_SHARD = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_HUB = re.compile(r"models--([^/]+?)--([^/]+)")
_NO_CHAT = {  # general.type of files that go with a model
    "mmproj": "it is a projector for pictures or sound, which goes with a model",
    "adapter": "it is an adapter, which goes with a model",
    "imatrix": "it is an importance matrix, not a model",
}


@dataclass(frozen=True, slots=True)
class Found:
    """A file that may be a model. `info` None: it cannot be used, and `problem` says why."""

    path: Path
    kind: Kind
    name: str  # as its program calls it
    info: GgufInfo | None = None
    problem: str = ""


_known: dict[tuple[str, int, int], Found] = {}  # by real path, size and time of change, for the next scan


def scan(places: Iterable[Place], stop: Callable[[], bool] = lambda: False) -> Iterator[Found]:
    """Each file once, in the order of the places; of a split model the first shard. Ends early when told to."""
    seen: set[str] = set()
    for place in places:
        candidates = _ollama(place) if place.kind is Kind.OLLAMA else _walk(place, stop)
        for name, path in candidates:
            if stop():
                return
            real = os.path.realpath(path)
            if real not in seen:
                seen.add(real)
                yield _read(path, real, place.kind, name)


def hub_name(path: Path) -> str | None:
    """`owner/repo: file` of a file in the Hugging Face cache."""
    match = _HUB.search(str(path))
    if match is None:
        return None
    return f"{match[1]}/{match[2].replace('--', '-')}: {_stem(path)}"


def _ollama(place: Place) -> Iterator[tuple[str, Path]]:
    yield from ollama_models(place.folder)


def _walk(place: Place, stop: Callable[[], bool]) -> Iterator[tuple[str, Path]]:
    for root, folders, names in os.walk(place.folder):
        if stop():
            return
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            if name.endswith(".gguf") and not _LATER_SHARD.search(name) and path.is_file():
                hub = hub_name(path) if place.kind is Kind.HUB else None
                yield hub or _stem(path), path


def _stem(path: Path) -> str:
    return _SHARD.sub("", path.stem)


def _read(path: Path, real: str, kind: Kind, name: str) -> Found:
    try:
        status = os.stat(real)
    except FileNotFoundError:
        return Found(path, kind, name, None, f"{path} is missing: fetch the model again.")
    except OSError as error:
        return Found(path, kind, name, None, f"{path} cannot be read: {error.strerror}.")
    key = (real, status.st_size, status.st_mtime_ns)
    known = _known.get(key)
    if known is not None and (known.path, known.kind, known.name) == (path, kind, name):
        return known
    try:
        info = read_info(path)
        if (what := _NO_CHAT.get(str(info.metadata.get("general.type")))) or info.architecture == "clip":
            raise UserError(f"{path} cannot chat: {what or _NO_CHAT['mmproj']}.")
        expert_groups(info)
    except UserError as error:
        found = Found(path, kind, name, None, str(error))
    else:
        found = Found(path, kind, name, info)
        if len(info.shards) == 1:  # a later shard may change while the first stays
            _known[key] = found
    return found
