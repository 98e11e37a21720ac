"""Lint and types: the same as running `ruff check` and `mypy` in the source folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def passes(*command: str) -> None:
    run = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_ruff() -> None:
    passes("ruff", "check", ".")


@pytest.mark.timeout(600)  # the first run reads every library's types
def test_mypy() -> None:
    passes("mypy")
