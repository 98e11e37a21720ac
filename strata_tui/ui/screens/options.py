"""The options of the chat: each with its value, where that comes from, what it does and what it may be."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ...errors import UserError
from ...parameters import PARAMETERS, Parameter, Scope, shown, typed_value
from ..actions import Where, bindings
from ..options import Options
from ..widgets.rows import Rows
from .action_screen import sentence
from .edit_screen import EditScreen
from .list_screen import ListScreen

_SCOPES = tuple(Scope)
_KEYS, _ENTRY_KEYS = "enter changes, del takes back, ←/→ chat, model, all", "enter keeps, esc leaves"
_LABEL, _VALUE, _ORIGIN = 19, 26, 18  # cells of the columns; the value gives way to what is beside it


class _List(Rows):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.LISTS), *bindings(Where.OPTIONS)]


class OptionsScreen(ListScreen[None]):
    """What is changed here counts at once, for the scope that the title names."""

    CSS_PATH = "options.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.PAGES)]

    def __init__(self, options: Options, at: str = "") -> None:
        super().__init__()
        self._options = options
        self._scope = Scope.CHAT
        self._at = at

    def compose(self) -> ComposeResult:
        with Vertical(classes="section page", id="options"):
            yield _List(id="options-list")
            yield Static(id="options-about")
            yield Input(id="options-input", compact=True)
            yield Static(id="options-news")

    def on_mount(self) -> None:
        self.query_one(Input).display = False
        chosen = next((n for n, p in enumerate(PARAMETERS) if p.name == self._at), 0)
        self._fill(chosen)
        self.query_one(_List).focus()

    def on_resize(self) -> None:
        self.draw_soon(self._fill)

    @property
    def chosen(self) -> Parameter:
        """The highlighted option."""
        return PARAMETERS[self.query_one(_List).highlighted or 0]

    # Actions

    def do_options_change(self) -> None:
        """Asks for a value of the highlighted option."""
        parameter, own = self.chosen, self._options.at(self._scope, self.chosen.name)
        if parameter.name == "system":
            text = str(self._options.value("system").value if own is None else own)
            title = f"System prompt {self._scope.words}"
            note = "A chat keeps the prompt that it began with: this one and new ones are changed."
            self.app.push_screen(EditScreen(title, text, note if self._scope is not Scope.CHAT else ""), self._edited)
            return
        entry = self.query_one(Input)
        entry.value = "" if own is None else shown(own)
        entry.placeholder = f"{parameter.label} {self._scope.words}: {parameter.allowed}"
        self._ask(True)

    async def do_options_take_back(self) -> None:
        """What is set for the scope goes; the next layer counts again."""
        await self._put(None)

    def do_options_next(self) -> None:
        """The next scope."""
        self._turn(1)

    def do_options_previous(self) -> None:
        """The scope before."""
        self._turn(-1)

    def do_page_close(self) -> None:
        """Closes the input line, else the screen."""
        if self.query_one(Input).display:
            self._close_input()
        else:
            self.dismiss(None)

    # Inside

    def _turn(self, by: int) -> None:
        self._scope = _SCOPES[(_SCOPES.index(self._scope) + by) % len(_SCOPES)]
        self._fill()

    @on(OptionList.OptionHighlighted)
    def _highlighted(self) -> None:
        self._show_about()

    @on(OptionList.OptionSelected)
    def _selected(self) -> None:
        self.do_options_change()

    @on(Input.Submitted)
    async def _entered(self, event: Input.Submitted) -> None:
        try:
            await self._put(typed_value(self.chosen.name, event.value, self._options.model))
        except UserError as error:  # the input line stays open
            self.tell(str(error), error=True)
        else:
            if not self.gone:
                self._ask(False)

    async def _edited(self, text: str | None) -> None:
        if text is not None:
            try:
                await self._put(text)
            except UserError as error:
                self.tell(str(error), error=True)

    async def _put(self, value: object) -> None:
        name = self.chosen.name
        await self._options.put(self._scope, name, value)
        if self.gone:
            return
        now = self._options.value(name).value
        beaten = value is not None and now != value
        self.tell(f"{self._options.origin(name)} says otherwise, and counts more." if beaten else "")
        self._fill()

    def _close_input(self) -> None:
        self._ask(False)
        self.tell("")

    def _ask(self, asked: bool) -> None:
        """Shows the input line, or the list alone; the border names the keys of what has the focus."""
        entry = self.query_one(Input)
        entry.display = asked
        self.query_one("#options").border_subtitle = _ENTRY_KEYS if asked else _KEYS
        (entry if asked else self.query_one(_List)).focus()

    def _fill(self, chosen: int | None = None) -> None:
        box, rows = self.query_one("#options"), self.query_one(_List)
        box.border_title = f"Options {self._scope.words}"
        box.border_subtitle = _ENTRY_KEYS if self.query_one(Input).display else _KEYS
        chosen = (rows.highlighted or 0) if chosen is None else chosen
        room = rows.scrollable_content_region.width or _LABEL + _VALUE + _ORIGIN
        cells = max(8, min(_VALUE, room - _LABEL - 2 - _ORIGIN))
        rows.clear_options()
        rows.add_options(Option(self._line(parameter, cells), id=parameter.name) for parameter in PARAMETERS)
        rows.highlighted = chosen
        self._show_about()

    def _line(self, parameter: Parameter, cells: int) -> Content:
        value = Content(shown(self._options.value(parameter.name).value) or "none").truncate(cells, ellipsis=True)
        own = self._options.at(self._scope, parameter.name) is not None
        value = value.pad_right(cells - value.cell_length)
        origin = self._options.origin(parameter.name)
        return Content.assemble(parameter.label.ljust(_LABEL), value.stylize("bold") if own else value, "  ", origin)

    def _show_about(self) -> None:
        parameter = self.chosen
        levels = []
        for scope in _SCOPES:
            own = self._options.at(scope, parameter.name)
            text = "–" if own is None else Content(shown(own)).truncate(20, ellipsis=True).plain
            levels.append(f"{scope.value} {text}")
        known = ""
        if parameter.name == "thinking" and self._options.model is not None:
            words = ", ".join(self._options.model.thinking)
            known = f" This model's template knows {words}." if words else " This model's template has no such choice."
        self.query_one("#options-about", Static).update(
            Content.assemble(
                f"{parameter.about}{known}\n",
                (f"Allowed: {parameter.allowed}\n", "$secondary"),
                ("Set: " + "   ".join(levels), "$secondary"),
            )
        )

    def tell(self, text: str, error: bool = False) -> None:
        news = self.query_one("#options-news", Static)
        news.display = bool(text)
        news.update(sentence(text, error))
