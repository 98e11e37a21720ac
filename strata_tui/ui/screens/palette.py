"""The palette: all actions, or the themes, to choose one by some letters of its name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import PurePath
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.command import CommandInput, CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Resize
from textual.widget import Widget
from textual.widgets import LoadingIndicator

from ..widgets.rows import CursorInk
from .closable import Closable

_OURS = "strata-"
WIDTH = 84  # of the page, in cells
_SIDES = 5  # of these, borders, padding and scroll bar
_ABOVE = 5  # lines of the screen that the list leaves: above the page, its borders, the input and a blank


class _List(CommandList, CursorInk):
    """The palette's list with the cursor of the other lists."""


class Palette(Closable, CommandPalette):
    """Textual's palette as a page like the others."""

    CSS_PATH: ClassVar[list[str | PurePath]] = ["palette.tcss"]

    def __init__(
        self, title: str, placeholder: str, providers: Sequence[type[Provider]] | None = None, id: str | None = None
    ) -> None:
        super().__init__(providers, placeholder=placeholder, id=id)
        self._heading, self._hint = title, placeholder

    def compose(self) -> ComposeResult:
        with Vertical(id="--container"):
            with Horizontal(id="--input"):
                yield CommandInput(placeholder=self._hint, select_on_focus=False)
            with Vertical(id="--results"):
                yield _List()
                yield LoadingIndicator()

    def on_mount(self) -> None:
        page = self.query_one("#--container", Widget)
        page.add_class("section", "-keys")
        page.border_title = self._heading
        page.border_subtitle = "enter chooses, esc closes"

    def on_resize(self, event: Resize) -> None:
        self.query_one(CommandList).styles.max_height = max(1, event.size.height - _ABOVE)


class Themes(Provider):
    """A line a theme: the one in use, so that enter changes nothing, then ours; on the right what it is made for."""

    async def discover(self) -> Hits:
        for name, about in self._themes():
            yield DiscoveryHit(_line(self.app, Content(name), about), partial(self._use, name), text=name)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, about in self._themes():
            if (score := matcher.match(name)) > 0:
                yield Hit(score, _line(self.app, matcher.highlight(name), about), partial(self._use, name), text=name)

    def _themes(self) -> list[tuple[str, str]]:
        found = []
        for name, theme in self.app.available_themes.items():
            about = "the terminal's own colours" if theme.ansi else "dark" if theme.dark else "light"
            found.append((name, f"in use, {about}" if name == self.app.theme else about))
        now = self.app.theme
        return sorted(found, key=lambda entry: (entry[0] != now, not entry[0].startswith(_OURS), entry[0]))

    def _use(self, name: str) -> None:
        self.app.theme = name


class Actions(Provider):
    """A line an action: what it does, and on the right its keys and its slash command."""

    async def discover(self) -> Hits:
        for name, routes, callback, _ in self.app.get_system_commands(self.screen):
            yield DiscoveryHit(_line(self.app, Content(name), routes), callback, text=name)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, routes, callback, _ in self.app.get_system_commands(self.screen):
            if (score := matcher.match(name)) > 0:
                yield Hit(score, _line(self.app, matcher.highlight(name), routes), callback, text=name)


def _line(app: App[object], name: Content, about: str) -> Content:
    """A name, and on the right what there is to say about it, where there is room."""
    room = min(WIDTH, app.size.width) - _SIDES
    gap = room - name.cell_length - len(about)
    return Content.assemble(name, " " * gap, about) if gap >= 2 else name
