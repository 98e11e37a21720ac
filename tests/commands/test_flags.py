"""Flags as settings, and as the chat's child gets them."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from strata_tui import config
from strata_tui.cli import build_parser
from strata_tui.commands import chat
from strata_tui.commands.flags import settings_of
from strata_tui.engine.modes import Residency


def test_the_child_gets_the_same_flags() -> None:
    words = ["chat", "-m", "a b.gguf", "--gpu", "-1", "--ctx", "4096", "--theme", "-x", "--log", "l", "--pinning", "on"]
    parser = build_parser()
    # "-x" can only be given as --theme=-x; it must reach the child in that form too
    words[words.index("--theme") : words.index("--theme") + 2] = ["--theme=-x"]
    given = parser.parse_args(words)
    again = parser.parse_args(["chat", *chat._flags(given, 12), "--child=7"])
    expected = argparse.Namespace(**vars(given) | {"resume": 12, "child": 7})
    assert again == expected


def test_flags_that_turn_something_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRATA_TUI_CONFIG", str(tmp_path / "settings.toml"))
    flags = ["chat", "--no-mirror", "--no-profile", "--residency", "adaptive", "--verify-cache", "8"]
    given = build_parser().parse_args(flags)
    settings = settings_of(given)
    options = settings.engine_options()
    assert (options.mirror_gib, options.profiles, options.verify_cache) == (0.0, None, 8)
    assert options.modes.residency is Residency.ADAPTIVE
    assert settings_of(build_parser().parse_args(["chat", *chat._flags(given, None), "--child"])) == settings
    on = settings_of(build_parser().parse_args(["chat", "--no-profile", "--profile", "on"])).engine_options()
    assert on.profiles == config.profile_dir()
