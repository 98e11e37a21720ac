"""Ollama's folder: manifests give names to GGUF files that are called by their hash."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

_MODEL = "application/vnd.ollama.image.model"
_USUAL = ("registry.ollama.ai", "library")  # left out of names, as Ollama does


def ollama_models(folder: Path) -> Iterator[tuple[str, Path]]:
    """(name, file) of each model that a manifest below `folder` names, by name; the file may be missing."""
    base = folder / "manifests"
    found: list[tuple[str, Path]] = []
    for root, subfolders, names in os.walk(base):
        subfolders.sort()
        for tag in names:
            path = Path(root, tag)
            digest = _digest(path)
            if digest is not None:
                *parts, model = path.parent.relative_to(base).parts or ("",)
                shown = "/".join(part for part, usual in _padded(parts) if part != usual)
                name = f"{shown}/{model}:{tag}" if shown else f"{model}:{tag}"
                found.append((name, folder / "blobs" / digest.replace(":", "-")))
    yield from sorted(found)


def _padded(parts: list[str]) -> list[tuple[str, str]]:
    """The parts of a name with what they usually are: the registry, and the person."""
    return [(part, _USUAL[number] if number < len(_USUAL) else "") for number, part in enumerate(parts)]


def _digest(manifest: Path) -> str | None:
    """The hash of the manifest's model; None where it is no manifest or names none."""
    try:
        data = json.loads(manifest.read_text(encoding="utf-8"))
        for layer in data["layers"]:
            digest = layer["digest"]
            if layer["mediaType"] == _MODEL and isinstance(digest, str) and "/" not in digest:
                return digest
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None
