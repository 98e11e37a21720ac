"""The engine's parts that know no ggml: property tests in C, on a simulated transport, plain and with sanitizers."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import pure_parts  # noqa: E402

sys.path.remove(str(HERE))


@cache
def why_not(variant: str) -> str | None:
    cc = pure_parts.compiler()
    return "there is no C compiler" if cc is None else pure_parts.missing(cc, variant)


def built(program: pure_parts.Program, variant: str, target: Path) -> Path:
    reason = why_not(variant)
    if reason is not None:
        pytest.skip(reason)
    cc = pure_parts.compiler()
    assert cc is not None
    return pure_parts.build(cc, program, variant, target)


@pytest.mark.parametrize("variant", pure_parts.VARIANTS)
@pytest.mark.parametrize("name", pure_parts.PROGRAMS)
def test_program(name: str, variant: str, tmp_path: Path) -> None:
    program = pure_parts.PROGRAMS[name]
    done = pure_parts.run(built(program, variant, tmp_path), seed=1, steps=program.steps[variant])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("ok:")
    assert done.stderr == ""


def test_serving_the_next_expert_is_noticed(tmp_path: Path) -> None:
    program = pure_parts.PROGRAMS["test_flow"]
    done = pure_parts.run(built(program, "plain", tmp_path), 1, 1000, "fault")
    assert done.returncode != 0
    assert "WRONG_BYTES" in done.stderr


def test_each_guard_is_needed() -> None:
    reason = why_not("plain")
    if reason is not None:
        pytest.skip(reason)
    done = subprocess.run([sys.executable, str(HERE / "mutations.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
