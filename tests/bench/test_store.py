from __future__ import annotations

import json
from pathlib import Path

import pytest

from strata_tui.cli import main


def test_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    assert main(["bench", "store", "--messages", "200", "--rounds", "2", "--json", str(report)]) == 0
    assert "slowest query, median:" in capsys.readouterr().out
    queries = json.loads(report.read_text())["queries"]
    assert [len(q["ms"]) for q in queries.values()] == [2] * len(queries)
    assert (queries["one message"]["results"], queries["Chinese, two characters"]["results"]) == (1, 20)


def test_a_report_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "store", "--messages", "200", "--rounds", "1", "--json", str(tmp_path / "no" / "file")]
    assert main(words) == 2
    assert "cannot be written" in capsys.readouterr().err
