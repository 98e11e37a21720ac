"""Contrast, and colours that can be read: WCAG 2's ratio of at least 4.5 for text.

Our own theme files are chosen to hold it and are tested as they are. Textual's own themes are made for other screens;
their grounds and inks are moved as little as it takes. A person's own themes are left as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from textual.color import BLACK, WHITE, Color, ColorParseError
from textual.theme import Theme

LEAST = 4.5
_MARGIN = 0.15  # for what blending and rounding take
_GROUND_LEAST = 6.0  # of plain text, so that inks have room
_INKS = ("primary", "secondary", "accent", "warning", "error", "success")
_STEPS = 40


def contrast(one: Color, other: Color) -> float:
    """The contrast ratio of two opaque colours, from 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def readable(ink: Color, grounds: Iterable[Color], least: float = LEAST) -> Color:
    """The ink, moved towards black or white until it has the contrast on each ground; the best there is if none has."""
    grounds = list(grounds)

    def worst(color: Color) -> float:
        return min(contrast(color, ground) for ground in grounds)

    if worst(ink) >= least:
        return ink
    goal = max((BLACK, WHITE), key=worst)
    for step in range(1, _STEPS + 1):
        moved = ink.blend(goal, step / _STEPS)
        if worst(moved) >= least:
            return moved
    return goal


def muted(foreground: Color, grounds: Iterable[Color]) -> Color:
    """The quietest ink that can still be read: plain text, moved towards the ground."""
    grounds = list(grounds)
    return readable(foreground.blend(grounds[0], 0.45), grounds, LEAST + _MARGIN)


def legible(theme: Theme) -> Theme:
    """A theme whose text can be read on its grounds. One in the terminal's own colours is left as it is."""
    if theme.ansi:
        return theme
    made = theme.to_color_system().generate()
    background, foreground = _opaque(made["background"], BLACK), _opaque(made["foreground"], WHITE)
    foreground = readable(foreground, [background], _GROUND_LEAST)
    surface, panel = (_calm(_opaque(made[name], background), background, foreground) for name in ("surface", "panel"))
    cursor = _opaque(theme.variables.get("block-cursor-background", made["primary"]), background)
    grounds = [background, surface, panel]
    inks = {name: readable(_opaque(made[name], background), grounds, LEAST + _MARGIN) for name in _INKS}
    variables = {
        **theme.variables,
        **{f"text-{name}": ink.hex for name, ink in inks.items()},
        "border": inks["primary"].hex,
        "footer-background": panel.hex,
        "footer-key-foreground": inks["accent"].hex,
        "footer-description-foreground": foreground.hex,
        "block-cursor-background": cursor.hex,
        "block-cursor-foreground": readable(foreground, [cursor]).hex,
        "block-cursor-blurred-background": _calm(cursor.blend(background, 0.7), background, foreground).hex,
        "block-cursor-blurred-foreground": foreground.hex,
        "block-hover-background": panel.hex,
    }
    return replace(
        theme,
        foreground=foreground.hex,
        background=background.hex,
        surface=surface.hex,
        panel=panel.hex,
        primary=inks["primary"].hex,
        secondary=inks["secondary"].hex,
        accent=inks["accent"].hex,
        warning=inks["warning"].hex,
        error=inks["error"].hex,
        success=inks["success"].hex,
        variables=variables,
    )


def _calm(ground: Color, background: Color, foreground: Color) -> Color:
    """The ground, moved towards the background until plain text can be read on it with room for inks."""
    for step in range(_STEPS + 1):
        moved = ground.blend(background, step / _STEPS)
        if contrast(foreground, moved) >= _GROUND_LEAST:
            return moved
    return background


def _opaque(value: str, ground: Color) -> Color:
    try:
        color = Color.parse(value)
    except ColorParseError:
        return ground
    return color if color.a == 1 else ground.blend(color.with_alpha(1), color.a)


def _luminance(color: Color) -> float:
    parts = [part / 255 for part in color.rgb]
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
