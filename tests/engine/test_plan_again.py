"""llama.cpp plans where the tensors of its graphs lie once, for the largest; no window has that planned anew."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPLIES = """
import sys
from dataclasses import replace
sys.path.insert(0, sys.argv[1])
from talk import GREEDY, talk
from pathlib import Path
from strata_tui.engine import llama
from strata_tui.engine.modes import Drafting, Modes
if sys.argv[3] == "without":
    llama.Context.plan_again = lambda self, tier: True
with talk(Path(sys.argv[2]), context=512) as session:
    for text, drafts in (("Hello.", Drafting.OFF), ("Name three colours.", Drafting.TWO), ("A river?", Drafting.ONE)):
        session.engine.set_modes(Modes(draft=drafts))
        print(session.ask(text, sampling=replace(GREEDY, max_tokens=12)).text)
"""


@pytest.mark.parametrize(("how", "code"), [("as it is", 0), ("without", -6)])
def test_no_graph_is_laid_out_anew(how: str, code: int, demo_model: Path) -> None:
    """ggml ends the process where it would; without the second plan it does at the first prompt."""
    ended = subprocess.run(
        [sys.executable, "-P", "-c", REPLIES, str(Path(__file__).parents[1]), str(demo_model), how],
        env=os.environ | {"GGML_SCHED_DEBUG_REALLOC": "2"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == code, ended.stderr[-2000:]
    assert code == 0 or "graph reallocation" in ended.stderr
    assert code != 0 or len(ended.stdout.splitlines()) >= 3
