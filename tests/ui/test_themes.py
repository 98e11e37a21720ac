from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from textual.app import App
from textual.color import Color

from strata_tui.ui.legible import LEAST, contrast
from strata_tui.ui.themes import DEFAULT_THEME, TERMINAL_THEME, load_themes, own_folder, parse_theme

if TYPE_CHECKING:
    from tests.ui.conftest import Start

GOOD = b"""
name = "mine"
dark = false
[colors]
primary = "#123456"
background = "white"
[variables]
border = "#ff0000"
"""


def test_ours_load_and_hold_a_dark_and_a_light_one() -> None:
    found = load_themes([own_folder()])
    assert found.failures == []
    assert DEFAULT_THEME in found.themes
    assert {theme.dark for theme in found.themes.values()} == {True, False}


@pytest.mark.parametrize("name", sorted(n for n, theme in load_themes([own_folder()]).themes.items() if not theme.ansi))
def test_text_can_be_read_on_every_background(name: str) -> None:
    theme = load_themes([own_folder()]).themes[name]
    for ground in (theme.background, theme.surface, theme.panel):
        for ink in (
            theme.foreground,
            theme.secondary,
            theme.primary,
            theme.accent,
            theme.warning,
            theme.error,
            theme.success,
        ):
            assert ground and ink
            assert contrast(Color.parse(ink), Color.parse(ground)) >= LEAST, (ink, ground)


async def test_a_theme_of_ones_own_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(GOOD)
    theme = load_themes([own_folder(), tmp_path]).themes["mine"]
    app: App[None] = App()
    async with app.run_test() as pilot:
        app.register_theme(theme)
        app.theme = "mine"
        await pilot.pause()
        assert app.theme_variables["border"].lower() == "#ff0000"


def test_a_later_folder_replaces_a_theme(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(GOOD.replace(b"mine", DEFAULT_THEME.encode()))
    assert load_themes([own_folder(), tmp_path]).themes[DEFAULT_THEME].primary == "#123456"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"name = ", "not valid TOML"),
        (b"\xff\xfe", "not valid TOML"),
        (b"[colors]\nprimary = '#123456'", "name is missing"),
        (b"name = 'x'", "colors.primary is missing"),
        (GOOD.replace(b"#123456", b"#12345"), "colors.primary = '#12345' is no colour"),
        (GOOD.replace(b"primary", b"primry"), "unknown colour primry"),
        (GOOD.replace(b"false", b"'no'"), "dark = 'no' must be true or false"),
        (b"nmae = 'x'\n" + GOOD, "unknown key nmae"),
        (GOOD.replace(b"'#123456'", b"3").replace(b'"#123456"', b"3"), "colors must be a table of texts"),
    ],
)
def test_faults_are_named(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_theme(data)
    assert reason in str(caught.value)


def test_bad_files_are_told_in_one_notice_and_the_good_ones_load(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"name = ")
    (tmp_path / "b.toml").write_bytes(GOOD)
    (tmp_path / "c.toml").write_bytes(b"name = 'c'")
    found = load_themes([tmp_path, tmp_path / "missing"])
    assert list(found.themes) == ["mine"]
    assert found.notice.startswith("2 theme files were left out: ")
    assert str(tmp_path / "a.toml") in found.notice and "c.toml" in found.notice
    assert load_themes([]).notice == ""


async def test_files_are_read_again_on_command(start: Start) -> None:
    async with start(load=False) as run:
        folder = run.options.settings_file.parent / "themes"
        folder.mkdir(parents=True)
        (folder / "mine.toml").write_bytes(GOOD)
        await run.say("/theme reload")
        await run.say("/theme mine")
        await run.until(lambda: run.app.theme == "mine")
        (folder / "mine.toml").write_bytes(GOOD.replace(b"#ff0000", b"#00ff00"))
        await run.say("/theme reload")
        await run.until(lambda: run.app.theme_variables["border"].lower() == "#00ff00")
        assert "read again" in run.screen.flash.text
        (folder / "mine.toml").write_bytes(b"name = ")
        await run.say("/theme reload")
        assert "mine.toml: not valid TOML" in run.screen.flash.text
        assert run.app.theme == "mine"


def test_yellow_is_no_ink_of_text_where_the_ground_may_be_white() -> None:
    theme = load_themes([own_folder()]).themes[TERMINAL_THEME]
    assert theme.warning == "ansi_yellow"  # short words beside a sign or a number; code can be a whole sentence
    assert theme.variables["text-warning"] not in (theme.warning, theme.error)
