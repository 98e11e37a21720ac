"""Every feature that is said to be here is shown by tests that exist, and README says the same."""

from __future__ import annotations

import ast
from collections import Counter
from functools import lru_cache
from pathlib import Path

import pytest
from features import FEATURES, Feature

TESTS = Path(__file__).parent
ALL = [feature for area in FEATURES.values() for feature in area]


@lru_cache
def names_in(file: str) -> frozenset[str]:
    """The tests that pytest would collect from a file, as far as its text tells: names, and Class::name."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    found = set()
    for node in tree.body:
        inner = [(f"{node.name}::", node.body)] if isinstance(node, ast.ClassDef) and node.name[:4] == "Test" else []
        for prefix, body in [("", [node]), *inner]:
            for one in body:
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name.startswith("test_"):
                    found.add(prefix + one.name)
    return frozenset(found)


@pytest.mark.parametrize("feature", ALL, ids=[feature.name for feature in ALL])
def test_a_yes_has_tests_and_a_no_has_a_reason(feature: Feature) -> None:
    assert bool(feature.tests) != bool(feature.reason)
    for node in feature.tests:
        file, _, name = node.partition("::")
        assert Path(file).name.startswith("test_") and name in names_in(file), node


def test_what_is_not_there_is_noticed() -> None:
    assert "test_what_is_not_there_is_noticed" in names_in("test_features.py")
    assert not names_in("test_features.py") & {"names_in", "test_nothing", "ALL"}


def test_no_feature_stands_twice() -> None:
    assert not [name for name, count in Counter(feature.name for feature in ALL).items() if count > 1]


def readme_section() -> str:
    text = (TESTS.parent / "README.md").read_text(encoding="utf-8")
    _, _, section = text.partition("\n## Features\n")
    return section.partition("\n## ")[0]


def test_readme_says_the_same() -> None:
    section = readme_section()
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in section.splitlines() if line[:1] == "|"]
    said = dict(rows[2:])
    assert said == {area: ", ".join(f.name for f in found if f.here) for area, found in FEATURES.items()}
    flat = " ".join(section.split())
    for feature in ALL:
        if not feature.here:
            assert f"{feature.name}: {feature.reason}." in flat
