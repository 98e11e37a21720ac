"""What the app has drawn, as an SVG on a strict grid of cells, and as a PNG by rsvg-convert.

Every glyph that is not one cell wide has an element of its own, so that a picture shows what a terminal would: no
font's advance can move what follows. Sixteen-colour themes are drawn in a terminal's usual colours, on a dark or on a
light ground.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.color import Color, ColorType
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from textual.app import App

CELL, LINE, FONT, BASE = 10, 19, 16.61, 15.4  # pixels: a cell of DejaVu Sans Mono, its size and base line
_WIDE_FONT = 19
DARK = TerminalTheme(
    (18, 18, 18),
    (204, 204, 204),
    [(0, 0, 0), (205, 49, 49), (13, 188, 121), (229, 229, 16), (36, 114, 200), (188, 63, 188), (17, 168, 205)]
    + [(229, 229, 229)],
    [(102, 102, 102), (241, 76, 76), (35, 209, 139), (245, 245, 67), (59, 142, 234), (214, 112, 214), (41, 184, 219)]
    + [(255, 255, 255)],
)
LIGHT = TerminalTheme(
    (255, 255, 255),
    (51, 51, 51),
    [(0, 0, 0), (205, 49, 49), (0, 135, 90), (148, 152, 0), (4, 81, 165), (188, 5, 188), (5, 152, 188), (85, 85, 85)],
    [(102, 102, 102), (205, 49, 49), (20, 206, 20), (181, 186, 0), (4, 81, 165), (188, 5, 188), (5, 152, 188)]
    + [(165, 165, 165)],
)

Rgb = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Picture:
    """One screen: its size in cells, and the elements that draw it."""

    caption: str
    width: int
    height: int
    body: str

    @property
    def pixels(self) -> tuple[int, int]:
        return self.width * CELL, self.height * LINE


def take(app: App[Any], caption: str, theme: TerminalTheme = DARK) -> Picture:
    """What the app shows now."""
    width, height = app.size
    console = Console(
        width=width, height=height, file=StringIO(), force_terminal=True, color_system="truecolor", record=True
    )
    drawn = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens, simplify=False)
    console.print(drawn)
    segments = Segment.filter_control(console._record_buffer)
    lines = list(Segment.split_and_crop_lines(segments, width, include_new_lines=False))[:height]
    return Picture(caption, width, height, "".join(_elements(lines, width, height, theme)))


def sheet(pictures: Sequence[Picture], columns: int) -> str:
    """The SVG of pictures in columns, each under its caption."""
    gap, head = 12, 24
    wide = max(p.pixels[0] for p in pictures)
    rows = [pictures[n : n + columns] for n in range(0, len(pictures), columns)]
    parts, y = [], gap
    for row in rows:
        for number, picture in enumerate(row):
            x = gap + number * (wide + gap)
            parts.append(
                f'<text x="{x}" y="{y + 17}" font-size="15" fill="#fff" font-family="DejaVu Sans">'
                f"{escape(picture.caption)}</text>"
                f'<g transform="translate({x},{y + head})">{picture.body}</g>'
            )
        y += max(p.pixels[1] for p in row) + head + gap
    return _svg(gap + min(columns, len(pictures)) * (wide + gap), y, "".join(parts), "#6a2a55")


def alone(picture: Picture) -> str:
    """The SVG of one picture."""
    return _svg(*picture.pixels, picture.body)


def to_png(svg: str, path: Path, scale: float = 1.0) -> None:
    """Writes a PNG."""
    subprocess.run(["rsvg-convert", "-z", str(scale), "-o", str(path)], input=svg.encode(), check=True)


def _svg(width: int, height: int, body: str, ground: str = "#000") -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" xml:space="preserve">'
        f'<rect width="{width}" height="{height}" fill="{ground}"/>'
        f'<g font-family="DejaVu Sans Mono, WenQuanYi Micro Hei Mono" font-size="{FONT}">{body}</g></svg>'
    )


def _elements(lines: Iterable[list[Segment]], width: int, height: int, theme: TerminalTheme) -> Iterator[str]:
    ground = _hex(theme.background_color)
    yield f'<rect width="{width * CELL}" height="{height * LINE}" fill="{ground}"/>'
    texts: list[str] = []  # above all grounds
    for y, line in enumerate(lines):
        x = 0
        for segment in line:
            style = segment.style or Style.null()
            ink, back = _colours(style, theme)
            cells = cell_len(segment.text)
            if back != tuple(theme.background_color):
                yield (
                    f'<rect x="{x * CELL}" y="{y * LINE}" width="{cells * CELL}" height="{LINE}" fill="{_hex(back)}"/>'
                )
            texts += _texts(segment.text, x, y, style, ink)
            x += cells
    yield from texts


def _texts(text: str, x: int, y: int, style: Style, ink: Rgb) -> Iterator[str]:
    attributes = f'fill="{_hex(ink)}"'
    if style.bold:
        attributes += ' font-weight="bold"'
    if style.italic:
        attributes += ' font-style="italic"'
    run, start = "", x
    for glyph in _glyphs(text):
        cells = cell_len(glyph)
        if cells == 1 and glyph.isascii():
            if not run:
                start = x
            run += glyph
        else:
            if run.strip():
                yield _text(run, start, y, attributes)
            run = ""
            if glyph.strip():
                yield _text(glyph, x, y, attributes + (f' font-size="{_WIDE_FONT}"' if cells == 2 else ""))
        x += cells
    if run.strip():
        yield _text(run, start, y, attributes)
    wide = cell_len(text) * CELL
    left = x * CELL - wide
    if style.underline:
        yield f'<rect x="{left}" y="{y * LINE + 17}" width="{wide}" height="1" fill="{_hex(ink)}"/>'
    if style.strike:
        yield f'<rect x="{left}" y="{y * LINE + 10}" width="{wide}" height="1" fill="{_hex(ink)}"/>'


def _text(text: str, x: int, y: int, attributes: str) -> str:
    kept = text.replace(" ", "\u00a0")
    return f'<text x="{x * CELL}" y="{y * LINE + BASE:.1f}" {attributes}>{escape(kept)}</text>'


def _glyphs(text: str) -> Iterator[str]:
    """Characters, each with what combines with it."""
    glyph = ""
    for character in text:
        if glyph and cell_len(character) and not glyph.endswith("\u200d"):
            yield glyph
            glyph = ""
        glyph += character
    if glyph:
        yield glyph


def _colours(style: Style, theme: TerminalTheme) -> tuple[Rgb, Rgb]:
    ink, back = _rgb(style.color, theme, True), _rgb(style.bgcolor, theme, False)
    if style.reverse:
        ink, back = back, ink
    if style.dim:
        ink = tuple(round((a + b) / 2) for a, b in zip(ink, back, strict=True))  # type: ignore[assignment]
    return ink, back


def _rgb(color: Color | None, theme: TerminalTheme, foreground: bool) -> Rgb:
    if color is None or color.type is ColorType.DEFAULT:
        return tuple(theme.foreground_color if foreground else theme.background_color)  # type: ignore[return-value]
    return tuple(color.get_truecolor(theme, foreground))  # type: ignore[return-value]


def _hex(rgb: Iterable[int]) -> str:
    return "#" + "".join(f"{part:02x}" for part in rgb)
