"""Text can be read in every theme: what is drawn is looked at, cell by cell."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.color import Color as RichColor
from textual.color import Color
from textual.theme import BUILTIN_THEMES

import strata_tui
from strata_tui.sessions.rows import Role
from strata_tui.ui.chat import Turn
from strata_tui.ui.legible import LEAST, contrast, legible, muted, readable
from strata_tui.ui.themes import TERMINAL_THEME, load_themes, own_folder

if TYPE_CHECKING:
    from tests.ui.conftest import Running, Start

OURS = load_themes([own_folder()]).themes
MARKDOWN = """# Head

## Two

*em* **strong** `code` [link](https://example.org) <b>html</b> $x^2$

> quote

1. one

| a | b |
|---|---|
| 1 | 2 |

```python
# comment
@decorated
def name(x: int) -> str:
    \"\"\"doc\"\"\"
    return "text" + 1 if None else True
class A: pass
```
"""
PAGES = ("options", "help", "model", "palette")


def drawn(run: Running) -> list[tuple[str, RichColor | None, RichColor | None]]:
    """Every run of letters on the screen with its ink and ground, as the terminal gets them.

    Of a page over the chat only its own: what it covers is dimmed on purpose.
    """
    found = []
    strips = run.app.screen._compositor.render_strips()
    if run.app.screen is not run.screen:
        x, y, width, height = run.app.screen.query(".section").first().region
        strips = [strip.crop(x, x + width) for strip in strips[y : y + height]]
    for strip in strips:
        for line_filter in run.app.get_line_filters():
            strip = strip.apply_filter(line_filter, Color(0, 0, 0))
        for text, style, control in strip:
            letters = re.sub("[\\s\u2500-\u259f\u258f]", "", text)  # lines, bars and meters are no text
            if letters and style is not None and not control:
                ink, ground = style.color, style.bgcolor
                found.append((letters, ground, ink) if style.reverse else (letters, ink, ground))
    return found


def unreadable(run: Running) -> set[tuple[str, float]]:
    """What has too little contrast."""
    found = set()
    for letters, ink, ground in drawn(run):
        assert ink is not None and ink.triplet and ground is not None and ground.triplet, letters
        ratio = contrast(Color(*ink.triplet), Color(*ground.triplet))
        if ratio < LEAST:
            found.add((letters, round(ratio, 2)))
    return found


async def filled(run: Running) -> None:
    """A chat with all kinds of text, the menu open, an error shown."""
    screen = run.screen
    screen.chat.turns += [
        Turn(Role.USER, "hello", 0.0),
        Turn(Role.ASSISTANT, MARKDOWN, 0.0, thinking="hm", model="tiny", note="cut"),
    ]
    await screen.transcript.show(screen.chat.turns)
    await run.pilot.press(*"/t")
    await run.until(lambda: screen.menu.open)
    screen.flash.say("it broke", error=True)


async def all_pages(run: Running) -> set[tuple[str, float]]:
    found = unreadable(run)
    for page in PAGES:
        await run.screen.commands.perform(page)
        await run.until(lambda: run.app.screen is not run.screen)
        found |= unreadable(run)
        await run.pilot.press("escape")
        await run.until(lambda: run.app.screen is run.screen)
    return found


@pytest.mark.timeout(300)
async def test_all_text_of_our_themes_can_be_read(start: Start) -> None:
    async with start(size=(170, 50), load=False) as run:
        await filled(run)
        for name, theme in OURS.items():
            if not theme.ansi:
                run.app.theme = name
                await run.pilot.pause(0.05)
                assert (name, await all_pages(run)) == (name, set())


@pytest.mark.timeout(300)
async def test_the_text_of_textuals_themes_can_be_read_too(start: Start) -> None:
    async with start(size=(170, 50), load=False) as run:
        await filled(run)
        for name, theme in BUILTIN_THEMES.items():
            if not theme.ansi:
                run.app.theme = name
                await run.pilot.pause(0.05)
                assert (name, unreadable(run)) == (name, set())


@pytest.mark.parametrize("theme", ["strata-dark", "strata-light", "textual-light"])
async def test_without_colour_all_can_be_read(start: Start, monkeypatch: pytest.MonkeyPatch, theme: str) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with start(size=(170, 50), load=False) as run:
        run.app.theme = theme
        await filled(run)
        assert unreadable(run) == set()
        assert {c.triplet.red - c.triplet.blue for _, c, _ in drawn(run) if c and c.triplet} == {0}
        await run.pilot.press("escape", "ctrl+c", "alt+o")
        await run.until(lambda: run.app.screen is not run.screen)
        [line] = {ground for letters, _, ground in drawn(run) if letters.startswith("systemprompt")}
        assert line != next(ground for letters, _, ground in drawn(run) if letters.startswith("temperature"))


async def test_the_terminals_own_colours_are_sent_as_such(start: Start) -> None:
    async with start(size=(170, 50), load=False) as run:
        await filled(run)
        run.app.theme = TERMINAL_THEME
        await run.pilot.pause(0.05)
        sent = [color for _, ink, ground in drawn(run) for color in (ink, ground) if color is not None]
        assert {color.triplet for color in sent} == {None}  # no colour of our own
        plain = [(ink, ground) for letters, ink, ground in drawn(run) if letters == "hello"]
        assert all(
            ink is not None and ink.is_default and ground is not None and ground.is_default for ink, ground in plain
        )


async def test_a_terminal_of_sixteen_colours_gets_its_own(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("textual.constants.COLOR_SYSTEM", "standard")
    async with start(load=False) as run:
        assert run.app.theme == TERMINAL_THEME


def test_there_are_enough_of_ours() -> None:
    assert len(OURS) >= 6 and {theme.dark for theme in OURS.values()} == {True, False}


def test_an_ink_is_moved_no_further_than_needed() -> None:
    white, grey = Color(255, 255, 255), Color(120, 120, 120)
    assert readable(grey, [Color(0, 0, 0)]) == grey
    moved = readable(grey, [white])
    assert LEAST <= contrast(moved, white) < LEAST + 0.4
    hopeless = readable(grey, [Color(110, 110, 110), Color(130, 130, 130)], least=7)
    assert hopeless.rgb in ((0, 0, 0), (255, 255, 255))
    quiet = muted(Color(0, 0, 0), [white])
    assert LEAST <= contrast(quiet, white) < contrast(Color(0, 0, 0), white)


def test_what_can_be_read_is_left_as_it_is() -> None:
    theme = BUILTIN_THEMES["catppuccin-mocha"]
    moved = legible(theme)
    for name in ("success", "foreground", "background"):
        assert Color.parse(getattr(moved, name)).hex == Color.parse(getattr(theme, name)).hex, name
    assert legible(BUILTIN_THEMES["ansi-dark"]) is BUILTIN_THEMES["ansi-dark"]


def test_no_emoji() -> None:
    """Terminals draw them in different widths, and not all draw them."""
    emoji = re.compile("[\u2600-\u27bf\ufe0f\U0001f000-\U0001faff]")
    package = Path(strata_tui.__file__).parent
    files = [*package.rglob("*.py"), *package.rglob("*.tcss"), *own_folder().glob("*.toml")]
    assert [path for path in files if emoji.search(path.read_text())] == []
