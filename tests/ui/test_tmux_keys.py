"""Every default key of the one table of actions, through a real terminal: tmux, and a tmux inside it.

Each key is pressed where it counts, and what its action does has to be seen. A key of the table that is not pressed
here fails the test.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ui import key_tours as tours
from ui import page_tours
from ui.key_tour import Tour, key_line
from ui.looks.sample import long_chat, other_chats
from ui.tmux_terminal import LIMIT, SEQUENCES, Tmux, available, program

from strata_tui.sessions.store import Store
from strata_tui.ui.actions import ACTIONS, BY_ID

pytestmark = pytest.mark.skipif(not available(), reason="there is no tmux here")

PREFIXES = {"ctrl+a", "ctrl+b"}  # of GNU screen and of tmux
# alt with a digit, ctrl+shift, and what terminals cannot tell from other keys
UNTOLD = re.compile(r"alt\+\d|ctrl\+(shift\+.*|[him]|tab|comma)|f10|f11")


def begun(folder: Path, nested: bool, demo_model: Path, small_model: Path) -> Tmux:
    """The chat on the demo model, whose replies last; in its store the chat with all kinds of messages, and others."""
    for name in ("data", "models"):
        (folder / name).mkdir(parents=True)
    (folder / "settings.toml").write_text('[models]\nfolders = ["models"]\n')
    for name in ("one", "two", "three", "four"):
        shutil.copy(small_model, folder / "models" / f"{name}.gguf")
    with Store(folder / "data" / "chats.sqlite3") as store:
        store.add_chats([long_chat(time.time()), *other_chats(time.time())[:4]]).result()
    tmux = Tmux(folder, nested)
    tmux.start(program(folder, demo_model, "-c --ctx 768 --slots 240 --max-tokens 900"), folder)
    return tmux


@pytest.fixture
def terminals(tmp_path: Path, demo_model: Path, tiny_model: Callable[[str], Path]) -> Iterator[dict[Path, Tmux]]:
    """One in tmux and one in a tmux inside tmux, each with a folder of its own."""
    started: dict[Path, Tmux] = {}
    try:
        for name, nested in (("plain", False), ("nested", True)):
            folder = tmp_path / name
            started[folder] = begun(folder, nested, demo_model, tiny_model("qwen3moe"))
        yield started
    finally:
        for tmux in started.values():
            tmux.kill()


def test_no_key_is_one_that_terminals_and_multiplexers_keep() -> None:
    keys = {key for action in ACTIONS for key in action.keys}
    assert not keys & PREFIXES
    assert not [key for key in keys if UNTOLD.fullmatch(key)]
    for action in ACTIONS:  # where a key may not come, another does the same
        assert not action.keys or set(action.keys) - set(SEQUENCES), action.id


@pytest.mark.timeout(240)
def test_every_default_key_does_what_its_action_says(terminals: dict[Path, Tmux]) -> None:
    table = {(action.id, key) for action in ACTIONS for key in action.keys}
    with ThreadPoolExecutor(len(terminals)) as pool:  # side by side: what takes long is waiting for the screen
        for pressed in pool.map(toured, terminals, terminals.values()):
            assert table - pressed == set(), "keys of the table that no tour presses"


def toured(folder: Path, terminal: Tmux) -> set[tuple[str, str]]:
    """All tours; the keys that were pressed."""
    terminal.until(lambda text: "ready" in text and tours.LAST in text and "enter send" in key_line(text))
    tour = Tour(terminal)
    page_tours.pages(tour)
    page_tours.texts(tour)
    page_tours.lists(tour, folder)
    tours.chat(tour, folder)
    tours.prompt(tour)
    tours.replies(tour)
    tours.attachments(tour, folder)
    tours.transcript(tour)
    page_tours.room(tour)
    tours.chats(tour)
    page_tours.models(tour, folder)
    page_tours.options(tour)
    page_tours.log(tour)
    terminal.press(*BY_ID["quit"].keys)
    end = time.monotonic() + LIMIT
    while not terminal.ended():
        assert time.monotonic() < end, terminal.shown()
        time.sleep(0.05)
    return tour.pressed | {("quit", key) for key in BY_ID["quit"].keys}
