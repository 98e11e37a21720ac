"""The parts of the settings file that hold names of the person's own: keys, model folders, models."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import UserError

PER_MODEL = "per_model"


@dataclass(frozen=True, slots=True)
class Sections:
    """`keys`: an action's id -> its keys, none to take them away. `folders`: more places for models."""

    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    folders: tuple[Path, ...] = ()


def take_sections(data: dict[str, Any], path: Path) -> Sections:
    """Takes [keys] and [models] out of the settings file's data. Raises UserError.

    Whether an id or a key exists is not known here.
    """
    keys = {id: _texts(value, f"{path}: keys.{id}") for id, value in take_table(data, "keys", path).items()}
    models = take_table(data, "models", path)
    folders = _texts(models.pop("folders", []), f"{path}: models.folders")
    if models:
        raise UserError(f"{path}: unknown key models.{next(iter(models))}; the only key there is folders.")
    return Sections(
        {id: tuple(texts) for id, texts in keys.items()},
        tuple(path.parent / os.path.expanduser(folder) for folder in folders),
    )


def take_table(data: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    """Takes a section out of the data; an empty one where there is none. Raises UserError."""
    table = data.pop(name, {})
    if not isinstance(table, dict):
        raise UserError(f"{path}: {name} must be a section, written [{name}].")
    return table


def _texts(value: object, what: str) -> list[str]:
    """A list of texts; one text, with commas between its parts, is a list too."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return [part for part in value if part]
    raise UserError(f'{what} must be a text or a list of texts, such as "a" or ["a", "b"].')
