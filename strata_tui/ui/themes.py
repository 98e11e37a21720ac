"""Themes from TOML files, one file a theme: ours, and those in a person's own `themes` folder.

A file has `name`, `dark` and a table `colors`; a table `variables` sets Textual's variables by name. `ansi`: its
colours are the terminal's own sixteen, and are sent as such.
Files that cannot be used are named with their fault; they never keep the app from starting.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from textual.color import Color, ColorParseError
from textual.theme import Theme

DEFAULT_THEME = "strata-dark"
TERMINAL_THEME = "strata-terminal"  # in the terminal's own sixteen colours
_COLORS = "primary secondary warning error success accent foreground background surface panel boost".split()
_TRACKS = tuple(f"scrollbar-{it}" for it in ("background", "background-hover", "background-active", "corner-color"))
_KEYS = {"name", "dark", "ansi", "colors", "variables"}


@dataclass(slots=True)
class ThemeSet:
    """What was loaded, and one line for each file that was not."""

    themes: dict[str, Theme] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def notice(self) -> str:
        """One sentence about all failures, or nothing."""
        if not self.failures:
            return ""
        noun = "theme file was" if len(self.failures) == 1 else "theme files were"
        return f"{len(self.failures)} {noun} left out: " + "; ".join(self.failures)


def own_folder() -> Path:
    """Our themes: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).parent.parent
    inside = package / "themes"
    return inside if inside.is_dir() else package.parent / "themes"


def load_themes(folders: Iterable[Path]) -> ThemeSet:
    """All themes of the folders; a later folder's theme replaces an earlier one of the same name."""
    result = ThemeSet()
    for folder in folders:
        try:
            files = sorted(folder.glob("*.toml")) if folder.is_dir() else []
        except OSError as error:
            result.failures.append(f"{folder}: {error.strerror}")
            continue
        for file in files:
            try:
                theme = parse_theme(file.read_bytes())
            except OSError as error:
                result.failures.append(f"{file}: {error.strerror}")
            except ValueError as error:
                result.failures.append(f"{file}: {error}")
            else:
                result.themes[theme.name] = theme
    return result


def parse_theme(data: bytes) -> Theme:
    """The theme in a file's bytes. Raises ValueError with one short reason."""
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not valid TOML ({error})") from error
    _known(table, _KEYS, "key")
    name = table.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ValueError("name is missing")
    dark = table.get("dark", True)
    if not isinstance(dark, bool):
        raise ValueError(f"dark = {dark!r} must be true or false")
    ansi = table.get("ansi", False)
    if not isinstance(ansi, bool):
        raise ValueError(f"ansi = {ansi!r} must be true or false")
    colors = _strings(table, "colors")
    _known(colors, set(_COLORS), "colour")
    for key, value in colors.items():
        try:
            Color.parse(value)
        except ColorParseError:
            raise ValueError(f"colors.{key} = {value!r} is no colour") from None
    if "primary" not in colors:
        raise ValueError("colors.primary is missing")
    return quiet_bars(Theme(name=name, dark=dark, ansi=ansi, variables=_strings(table, "variables"), **colors))


def quiet_bars(theme: Theme) -> Theme:
    """The theme with scroll bars like its borders, without a track of their own, unless it says otherwise."""
    made = {**theme.to_color_system().generate(), **theme.variables}
    bars = {
        "scrollbar": made["border-blurred"],
        "scrollbar-hover": made["secondary"],
        "scrollbar-active": made["accent"],
        **dict.fromkeys(_TRACKS, "ansi_default" if theme.ansi else "transparent"),
    }
    return replace(theme, variables={**bars, **theme.variables})


def _strings(table: dict[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise ValueError(f"{key} must be a table of texts")
    return value


def _known(table: dict[str, Any], known: set[str], noun: str) -> None:
    for key in table:
        if key not in known:
            raise ValueError(f"unknown {noun} {key}; known: {', '.join(sorted(known))}")
