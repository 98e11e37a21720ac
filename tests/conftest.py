"""Settings for every test."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before anything imports llama_cpp; see engine/native.py

import pytest

import strata_tui
from strata_tui.engine import native

pytest_plugins = ["model_fixtures"]


def pytest_report_header() -> str:
    return f"strata_tui: {os.path.dirname(strata_tui.__file__)}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and all(d.cuda_index is None for d in native.devices()):
        pytest.skip("llama.cpp offers no CUDA device here")
