"""What takes long to import is not imported before the first frame."""

from __future__ import annotations

import subprocess
import sys


def test_the_screen_is_up_before_what_reads_models_is_imported() -> None:
    code = (
        "import sys; import strata_tui.ui.app, strata_tui.engine.engine; "
        "print(*sorted({'numpy', 'gguf', 'llama_cpp', 'huggingface_hub', 'jinja2'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
