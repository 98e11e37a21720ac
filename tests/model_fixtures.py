"""Fixtures with models: small random ones (see models.py) and the demo model. A pytest plugin."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import models
import pytest
from nextn_models import BROKEN_MODELS, NEXTN_MODELS

TinyModel = Callable[[str], Path]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """`tiny_model(name)`: the GGUF of that name in models.MODELS or NEXTN_MODELS, written once a session.
    Do not change it."""
    folder = tmp_path_factory.mktemp("models")
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            made[name] = (models.MODELS | NEXTN_MODELS | BROKEN_MODELS)[name](folder / f"{name}.gguf")
        return made[name]

    return get


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The demo model (460 MiB), kept between runs outside the person's own cache."""
    from strata_tui.demo import ensure_demo_model

    folder = Path(tempfile.gettempdir()) / f"strata-tui-tests-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRATA_TUI_CACHE", str(folder))
        return ensure_demo_model()
