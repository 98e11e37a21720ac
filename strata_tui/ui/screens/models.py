"""The models of this machine, to choose one from."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ..actions import Where, bindings
from ..model_text import folders_text, model_details, model_line
from ..shelf import Shelf, Shelved, same_file
from ..widgets.rows import Rows
from .action_screen import ActionScreen, sentence

_BATCH_SECONDS = 0.2  # how long a thread looks before what it found is shown


class ModelsScreen(ActionScreen[Path | None]):
    """Gives back the file of the chosen model. The looking ends with the screen.

    `settings`: the settings file, which may name more folders.
    """

    CSS_PATH = "models.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.PAGES), *bindings(Where.MODELS)]

    def __init__(self, shelf: Shelf, current: Path | None, settings: Path) -> None:
        super().__init__()
        self._shelf = shelf
        self._current = current
        self._settings = settings
        self._found: list[Shelved] = []
        self._shown: list[Shelved] = []
        self._stop = threading.Event()
        self._looking = False
        self._moved = False  # the person has chosen a line

    def compose(self) -> ComposeResult:
        with Vertical(classes="section page", id="models") as box:
            box.border_title = "Models"
            box.border_subtitle = "enter loads, esc leaves"
            yield Input(id="models-filter", placeholder="Letters of a name", compact=True)
            yield Rows(id="models-list")
            with VerticalScroll(id="models-details", can_focus=False):
                yield Static()
            yield Static(id="models-news")

    def on_mount(self) -> None:
        self.query_one(OptionList).can_focus = False
        self.query_one(Input).focus()
        self.do_models_again()

    def on_unmount(self) -> None:
        self._stop.set()

    def on_resize(self) -> None:
        self.draw_soon(self._fill)

    # Actions

    def do_page_close(self) -> None:
        """Closes without a choice."""
        self.dismiss(None)

    def do_models_again(self) -> None:
        """Looks again."""
        if not self._looking:
            self._looking = True
            self.run_worker(self._look(), group="look")

    def do_models_up(self) -> None:
        """The line above."""
        self._moved = True
        self.query_one(OptionList).action_cursor_up()

    def do_models_down(self) -> None:
        """The line below."""
        self._moved = True
        self.query_one(OptionList).action_cursor_down()

    def do_models_page_up(self) -> None:
        """A page up."""
        self._moved = True
        self.query_one(OptionList).action_page_up()  # type: ignore[no-untyped-call]

    def do_models_page_down(self) -> None:
        """A page down."""
        self._moved = True
        self.query_one(OptionList).action_page_down()  # type: ignore[no-untyped-call]

    # Inside

    async def _look(self) -> None:
        self._found = []
        found = self._shelf.look(self._stop.is_set)
        try:
            while not self._stop.is_set():
                some, more = await asyncio.to_thread(_some, found)
                if self.gone:
                    return
                self._found += some
                self._fill()
                if not more:
                    break
        finally:
            self._looking = False
        self._fill()

    @on(Input.Changed)
    def _typed(self) -> None:
        self._fill()

    @on(Input.Submitted)
    def _entered(self) -> None:
        self._choose()

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self._choose()

    @on(OptionList.OptionHighlighted)
    def _highlighted(self) -> None:
        self._show_details()

    @property
    def chosen(self) -> Shelved | None:
        """The highlighted model."""
        number = self.query_one(OptionList).highlighted
        return self._shown[number] if number is not None and number < len(self._shown) else None

    def _choose(self) -> None:
        one = self.chosen
        if one is None:
            return
        if one.usable:
            self.dismiss(one.found.path)
        else:
            self.tell(one.problem, error=True)

    def _fill(self) -> None:
        rows, before = self.query_one(OptionList), self.chosen if self._moved else None
        letters = self.query_one(Input).value.lower().split()
        hits = [one for one in self._found if all(part in one.found.name.lower() for part in letters)]
        self._shown = sorted(hits, key=lambda one: not one.usable)  # those that cannot be used come last
        width = max(20, rows.scrollable_content_region.width)
        rows.clear_options()
        rows.add_options(Option(model_line(one, width, self._is_current(one))) for one in self._shown)
        place = next((n for n, one in enumerate(self._shown) if before and one.found.path == before.found.path), None)
        if place is None:
            place = next((n for n, one in enumerate(self._shown) if self._is_current(one)), 0)
        if self._shown:
            rows.highlighted = place
        self._show_details()
        self._show_state()

    def _is_current(self, one: Shelved) -> bool:
        return self._current is not None and same_file(one.found.path, self._current)

    def _show_details(self) -> None:
        details = self.query_one("#models-details")
        one = self.chosen
        width = max(20, details.scrollable_content_region.width)
        text = model_details(one, width) if one else folders_text(self._shelf.places(), self._settings)
        details.query_one(Static).update(text)
        details.scroll_home(animate=False)

    def _show_state(self) -> None:
        usable = sum(one.usable for one in self._found)
        others = len(self._found) - usable
        text = f"{usable} model{'' if usable == 1 else 's'}"
        if others:
            text += f", {others} file{'' if others == 1 else 's'} that cannot be used"
        if self._looking:
            text += ", looking for more …"
        elif not self._found:
            text = "No models were found; /pull REPO fetches one."
        elif not self._shown:
            number = len(self._found)
            text = f"No model has these letters ({number} model{'' if number == 1 else 's'} in all)."
        else:
            text += "; /help tells how to add folders"
        self.tell(text)

    def tell(self, text: str, error: bool = False) -> None:
        self.query_one("#models-news", Static).update(sentence(text, error, "$secondary"))


def _some(found: Iterator[Shelved]) -> tuple[list[Shelved], bool]:
    """What is found in a short while, and whether there may be more."""
    some: list[Shelved] = []
    end = time.monotonic() + _BATCH_SECONDS
    for one in found:
        some.append(one)
        if time.monotonic() > end:
            return some, True
    return some, False
