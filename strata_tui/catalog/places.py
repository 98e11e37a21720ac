"""Where people have models: the folders of other programs, ours, and their own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ..config import cache_dir, models_dir


class Kind(Enum):
    """Whose folder it is; the value is its name on the screen."""

    HUB = "Hugging Face"
    LLAMA_CPP = "llama.cpp"
    LM_STUDIO = "LM Studio"
    OLLAMA = "Ollama"
    OURS = "strata-tui"
    OWN = "own folder"


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that may hold models; it need not exist."""

    kind: Kind
    folder: Path


def places(
    own: Iterable[Path] = (), model: Path | None = None, environ: Mapping[str, str] | None = None
) -> list[Place]:
    """All places, the person's own first. `model`: the settings' model, whose folder counts too."""
    env = os.environ if environ is None else environ
    home = Path(env.get("HOME") or Path.home())
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    found = [Place(Kind.OWN, folder) for folder in own]
    if model is not None:
        found.append(Place(Kind.OWN, model.parent))
    found.append(Place(Kind.HUB, hub_folder(env)))
    found.append(Place(Kind.LLAMA_CPP, Path(env.get("LLAMA_CACHE") or cache / "llama.cpp")))
    found += [Place(Kind.LM_STUDIO, folder) for folder in _lm_studio(home)]
    found += [Place(Kind.OLLAMA, folder) for folder in _ollama(home, env)]
    found += [Place(Kind.OURS, folder) for folder in (models_dir(), cache_dir())]
    return list(dict.fromkeys(found))


def hub_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The Hugging Face cache, where its own library looks for it."""
    env = os.environ if environ is None else environ
    cache = Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME") or Path.home()) / ".cache")
    given = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE")
    return Path(given or Path(env.get("HF_HOME") or cache / "huggingface") / "hub")


def _lm_studio(home: Path) -> list[Path]:
    pointer = home / ".lmstudio-home-pointer"  # LM Studio writes here where its folder was moved to
    try:
        base = Path(pointer.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        base = home / ".lmstudio"
    folders = [base / "models", home / ".cache" / "lm-studio" / "models"]
    try:
        settings = json.loads((base / "settings.json").read_text(encoding="utf-8"))
        chosen = settings.get("downloadsFolder") if isinstance(settings, dict) else None
    except (OSError, ValueError):
        chosen = None
    if isinstance(chosen, str) and chosen:
        folders.insert(0, Path(chosen))
    return list(dict.fromkeys(folders))


def _ollama(home: Path, env: Mapping[str, str]) -> list[Path]:
    if env.get("OLLAMA_MODELS"):
        return [Path(env["OLLAMA_MODELS"])]
    return [
        home / ".ollama" / "models",
        Path("/usr/share/ollama/.ollama/models"),  # of the service
        Path("/var/lib/ollama/.ollama/models"),
    ]
