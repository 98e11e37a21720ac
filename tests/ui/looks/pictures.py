"""Takes pictures of the app: `PYTHONPATH=.:tests python -m ui.looks.pictures --out FOLDER`.

No test: it is for looking at. Every scene is taken at every size in every mode, on the real store and the real engine
with the demo model, and the pictures are put together on sheets. Needs rsvg-convert, DejaVu Sans Mono, and a font
for wide characters.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("COLORTERM", "truecolor")

import models as tiny
from rich.terminal_theme import TerminalTheme

from strata_tui.config import ChatOptions, Given, Settings
from strata_tui.demo import ensure_demo_model
from strata_tui.engine.engine import Engine, EngineOptions
from strata_tui.sections import Sections
from strata_tui.sessions.store import Store
from strata_tui.ui.app import StrataApp

from . import sample
from .raster import DARK, LIGHT, Picture, alone, sheet, take, to_png
from .scenes import SCENES, Stage

SIZES = ((60, 16), (80, 24), (120, 40), (200, 60))
_SHEETS = {(60, 16): (2, 5, 1.0), (80, 24): (2, 3, 1.0), (120, 40): (2, 2, 0.7), (200, 60): (1, 2, 0.7)}


@dataclass(frozen=True, slots=True)
class Mode:
    """A theme of ours, or none for the usual one; the terminal's own colours; and whether NO_COLOR is set."""

    theme: str | None
    terminal: TerminalTheme = DARK
    no_color: bool = False


MODES = {
    "dark": Mode("strata-dark"),
    "light": Mode("strata-light", LIGHT),
    "ansi": Mode("strata-terminal"),
    "ansi-light": Mode("strata-terminal", LIGHT),
    "nocolor": Mode(None, no_color=True),
    "grey": Mode("strata-dark", no_color=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", action="append", help="such as 80x24; all without")
    parser.add_argument("--mode", action="append", choices=MODES)
    parser.add_argument("--scene", action="append", choices=SCENES)
    parser.add_argument("--theme", help="instead of the mode's")
    parser.add_argument("--svg", action="store_true", help="keep each picture's SVG, too")
    given = parser.parse_args()
    sizes = [tuple(map(int, size.split("x"))) for size in given.size] if given.size else list(SIZES)
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.mode or MODES:
        for width, height in sizes:
            mode = MODES[name] if given.theme is None else Mode(given.theme, MODES[name].terminal)
            pictures = asyncio.run(photograph((width, height), mode, given.scene or list(SCENES), name))
            columns, rows, scale = _SHEETS.get((width, height), (1, 1, 1.0))
            for number in range(0, len(pictures), columns * rows):
                some = pictures[number : number + columns * rows]
                file = given.out / f"{width}x{height}-{name}-{number // (columns * rows) + 1}.png"
                to_png(sheet(some, columns), file, scale)
                print(file, *(picture.caption.split()[-1] for picture in some), flush=True)
            if given.svg:
                for picture in pictures:
                    (given.out / f"{picture.caption.replace(' ', '-')}.svg").write_text(alone(picture))


async def photograph(size: tuple[int, int], mode: Mode, wanted: list[str], name: str) -> list[Picture]:
    """The scenes that are wanted, in one run of the app."""
    os.environ.pop("NO_COLOR", None)
    if mode.no_color:
        os.environ["NO_COLOR"] = "1"
    with tempfile.TemporaryDirectory(prefix="strata-looks-") as made:
        folder = Path(made)
        os.environ |= {"HOME": made, "STRATA_TUI_DATA": made, "STRATA_TUI_CACHE": made, "XDG_CACHE_HOME": made}
        engine_options = EngineOptions(gpu=-1, threads=2, context=4096, slots=360, log=folder / "engine.log")
        given = {"theme": mode.theme} if mode.theme else {}
        options = ChatOptions(
            Settings(theme=mode.theme, max_tokens=400),
            engine_options,
            demo_model(),
            resume=None,
            store=folder / "chats.sqlite3",
            settings_file=folder / "settings.toml",
            given=Given(file=given, sections=Sections(folders=(shelf(folder / "models"),))),
        )
        with Store(options.store) as store:
            now = sample.now()
            ids = store.add_chats([sample.long_chat(now), *sample.other_chats(now)]).result()
            for gone in store.add_chats(sample.deleted_chats(now)).result():
                store.delete(gone or 0).result()
            engine = Engine(engine_options)
            try:
                app = StrataApp(options, engine, store, deque())
                async with app.run_test(size=size) as pilot:
                    app.chat_screen.prompt.cursor_blink = False
                    stage = Stage(app, pilot, ids[0] or 0)
                    await stage.until(lambda: app.chat_screen.model and app.chat_screen.snapshot.model)
                    return [await shoot(stage, scene, size, mode, name) for scene in SCENES if scene in wanted]
            finally:
                await asyncio.to_thread(engine.close)


async def shoot(stage: Stage, scene: str, size: tuple[int, int], mode: Mode, name: str) -> Picture:
    """One scene."""
    async with SCENES[scene](stage):  # type: ignore[attr-defined]
        picture = take(stage.app, f"{size[0]}x{size[1]} {name} {scene}", mode.terminal)
    await stage.back()
    return picture


def demo_model() -> Path:
    """The demo model, kept between runs."""
    folder = Path(tempfile.gettempdir()) / f"strata-tui-tests-{os.getuid()}"
    before = os.environ.get("STRATA_TUI_CACHE")
    os.environ["STRATA_TUI_CACHE"] = str(folder)
    try:
        return ensure_demo_model()
    finally:
        if before is not None:
            os.environ["STRATA_TUI_CACHE"] = before


def shelf(folder: Path) -> Path:
    """A folder of models for the picker: of several kinds, and one that is broken."""
    folder.mkdir()
    for name in ("qwen3moe", "gpt_oss", "deepseek2", "qwen3next", "llama_dense"):
        tiny.MODELS[name](folder / f"tiny-{name.replace('_', '-')}.gguf")
    tiny.not_gguf(folder / "half-a-download-of-something-with-a-long-name.gguf")
    (folder / demo_model().name).symlink_to(demo_model())
    return folder


if __name__ == "__main__":
    start = time.monotonic()
    main()
    print(f"{time.monotonic() - start:.0f} s")
