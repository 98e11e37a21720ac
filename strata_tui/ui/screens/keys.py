"""What the terminal really sends: each key as it arrives, and what it means here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.events import Key, Paste
from textual.screen import ModalScreen
from textual.widgets import Static

from ...text import clean_line
from ..help_text import EXAMPLE

_KEPT, _NAME = 12, 12  # keys that stay in view where there is room; cells of a name, at least
_BORDERS = 2  # lines of the page
_HINT = (
    "Press keys. A key that shows nothing is kept by the terminal, by tmux or screen, or by the desktop. "
    "The settings file gives an action another (/help lists their ids):"
)


class KeysScreen(ModalScreen[None]):
    """Takes every key; escape twice in a row leaves. `meaning` says what a key does in the chat, a line each;
    `settings`: the file where it gets another.
    """

    CSS_PATH = "keys.tcss"

    def __init__(self, meaning: Callable[[str], Sequence[str]], settings: Path) -> None:
        super().__init__()
        self._meaning = meaning
        self._hint = Content("\n").join(map(Content, (_HINT, str(settings), *(f"  {line}" for line in EXAMPLE))))
        self._seen: deque[tuple[str, Sequence[str]]] = deque(maxlen=_KEPT)
        self._escaped = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="section page -keys", id="keys") as box:
            box.border_title = "What the terminal sends"
            box.border_subtitle = "esc twice closes"
            yield Static(id="keys-seen")

    def on_mount(self) -> None:
        self._show()

    def on_key(self, event: Key) -> None:
        event.stop()
        event.prevent_default()
        if event.key == "escape" and self._escaped:
            self.dismiss(None)
            return
        self._escaped = event.key == "escape"
        character = f"Types {event.character!r}" if event.is_printable else ""
        others = [alias for alias in event.aliases if alias != event.key]
        also = f"Also called {', '.join(others)}" if others else ""
        self._add(event.key, *self._meaning(event.key), character, also)

    def on_paste(self, event: Paste) -> None:
        event.stop()
        self._add("(paste)", f"{len(event.text)} characters, marked as a paste by the terminal")

    def _add(self, name: str, *texts: str) -> None:
        self._seen.append((name, [clean_line(text) for text in texts if text]))
        self._show()

    def on_resize(self) -> None:
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        cells = max([_NAME, *(len(name) + 2 for name, _ in self._seen)])
        room = max(20, self.query_one("#keys-seen", Static).size.width - cells)
        lines = [line for name, texts in self._seen for line in _lines(name, texts, cells, room)]
        last = lines[-max(1, self.size.height - _BORDERS) :]
        self.query_one("#keys-seen", Static).update(Content("\n").join(last) if lines else self._hint)


def _lines(name: str, texts: Sequence[str], cells: int, room: int) -> list[Content]:
    """What came, and what it means, in lines of which all but the first are indented."""
    first, *rest = [line for text in texts for line in Content(text).wrap(room)] or [Content()]
    head = Content.assemble((name.ljust(cells), "$accent"), first)
    return [head, *(Content.assemble(" " * cells, line) for line in rest)]
