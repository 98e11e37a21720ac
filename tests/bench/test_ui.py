"""The measured program with a real model. What it measures is not asserted."""

from __future__ import annotations

from pathlib import Path

from strata_tui.bench.ui import READY, SIZE, _send
from strata_tui.bench.ui_child import Spec
from strata_tui.bench.ui_terminal import Terminal


def test_a_reply_is_as_long_as_asked_for(tmp_path: Path, demo_model: Path) -> None:
    spec = Spec(str(tmp_path), 0, "", 60, 0.0, str(demo_model), 1, -1)  # long enough to be seen running
    with Terminal(spec, SIZE) as terminal:
        terminal.wait_for(READY)
        _send(terminal)
        terminal.wait_for(READY)
        report = terminal.quit()
    assert report["reply_tokens"] == 60
    assert report["decode_rate"] > 0
    assert any(report["started"] <= now <= report["ended"] for now, _ in report["lags"])
