"""The Textual app: owns the engine and the store, loads the themes, shows the chat screen."""

from __future__ import annotations

import logging
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.command import Provider
from textual.filter import LineFilter, Monochrome, NoColor
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES, Theme

from ..config import ChatOptions
from ..engine.engine import Engine
from ..errors import UserError
from ..sessions.store import Store
from . import keyboard, pauses
from .actions import ACTIONS, BY_ID, key_name
from .keymap import UNBOUND
from .legible import legible, muted
from .screens.action_screen import ActionScreen
from .screens.chat import ChatScreen
from .screens.palette import Actions, Palette, Themes
from .themes import DEFAULT_THEME, TERMINAL_THEME, load_themes, own_folder, quiet_bars

_log = logging.getLogger(__name__)
_ANYWHERE = {"quit": "quit", "palette": "command_palette"}  # also while a page covers the chat


class StrataApp(App[int], inherit_bindings=False):
    """The terminal app. `run` is what the command line calls."""

    TITLE = "strata-tui"
    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = True
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {Actions}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            ",".join(BY_ID[id].keys), action, BY_ID[id].footer or BY_ID[id].label, show=bool(BY_ID[id].footer), id=id
        )
        for id, action in _ANYWHERE.items()
    ]

    def __init__(self, options: ChatOptions, engine: Engine, store: Store, problems: deque[Exception]) -> None:
        pauses.hold()
        keyboard.install()
        super().__init__()
        # A scroll that is still under way would end where it was going, although a later key went elsewhere; and over a
        # slow line, or beside a reply, each of its frames costs.
        self.animation_level = "none"
        self._options = options
        self.chat_screen = ChatScreen(engine, store, options, problems)
        self.chat_screen.reload_themes = self.load_themes
        self.chat_screen.take_copy = super().copy_to_clipboard
        self._kept_theme = ""

    def on_mount(self) -> None:
        for builtin in BUILTIN_THEMES.values():
            self.register_theme(quiet_bars(legible(builtin)))
        notice = self.load_themes()
        notices = [notice] if notice else []
        keymap = self.chat_screen.keymap
        self.set_keymap(keymap.textual())
        for problem in (*keymap.problems, *keymap.notes):
            _log.warning("%s", problem)
        if keymap.problems:
            more = len(keymap.problems) - 1
            notices.append(keymap.problems[0] + (f" {more} more in /help." if more else ""))
        wanted = self._options.settings.theme or self._usual_theme()
        if wanted in self.available_themes:
            self.theme = wanted
        else:
            self.theme = DEFAULT_THEME if DEFAULT_THEME in self.available_themes else self.theme
            notices.append(f"There is no theme {wanted}; {self.theme} is used.")
        self._kept_theme = self.theme
        self.push_screen(self.chat_screen)
        self.theme_changed_signal.subscribe(self, self._keep_theme)
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))  # all of it: others drew there
        self.call_after_refresh(self._begin, notices)

    def load_themes(self) -> str:
        """Reads the theme files, ours and the person's, and shows the theme in use anew; what is wrong with them."""
        found = load_themes([own_folder(), self._options.settings_file.parent / "themes"])
        for theme in found.themes.values():
            self.register_theme(theme)
        if self.theme in found.themes:
            self.refresh_css(animate=False)
            self.call_next(self.theme_changed_signal.publish, self.current_theme)
        return found.notice

    def copy_to_clipboard(self, text: str) -> None:
        """What a widget copies by itself goes the way of all copies, and that is said where it can be seen."""
        page = self.screen
        tell = page.tell if isinstance(page, ActionScreen) else None
        self.chat_screen.commands.copy(text, "The selection", tell)

    def _usual_theme(self) -> str:
        """The default theme; on terminals with no more than sixteen colours, and with NO_COLOR, the terminal's own."""
        own = self.no_color or self.console.color_system in (None, "standard")
        return TERMINAL_THEME if own else DEFAULT_THEME

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """`$muted`, for text that may step back; a theme file may have its own."""
        theme = self.current_theme
        if theme.ansi:
            return {"muted": "ansi_default"}
        made = theme.to_color_system().generate()
        grounds = [Color.parse(made[name]) for name in ("background", "surface", "panel")]
        return {"muted": muted(Color.parse(made["foreground"]), grounds).hex}

    def _begin(self, notices: list[str]) -> None:
        pauses.resume()
        self.chat_screen.load(None)
        if notices:
            self.chat_screen.flash.say("  ".join(notices), error=True)

    def _keep_theme(self, theme: Theme) -> None:
        if theme.name != self._kept_theme:
            self._kept_theme = theme.name
            self.chat_screen.commands.keep_theme(theme.name)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: every action that makes sense there."""
        if not isinstance(screen, ChatScreen):
            return
        for action in ACTIONS:
            if action.palette:
                keys = " ".join(key_name(key) for key in self.chat_screen.keymap.of(action.id))
                help_text = "  ".join(filter(None, (keys, action.usage)))
                yield SystemCommand(action.label, help_text, partial(screen.start, action.id))

    def get_key_display(self, binding: Binding) -> str:
        """A key as the footer shows it; nothing for an action without one."""
        return "" if binding.key == UNBOUND else binding.key_display or key_name(binding.key)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """As Textual has them; but which of its two for NO_COLOR is right depends on the theme in use, not on the
        first one: shades of grey, or no colour at all where the terminal's own are used.
        """
        filters = super().get_line_filters()
        if not (self.no_color and self.native_ansi_color):
            return filters
        return [NoColor() if isinstance(filter, Monochrome) else filter for filter in filters]

    def action_command_palette(self) -> None:
        """Shows the palette."""
        if not isinstance(self.screen, Palette):
            self.push_screen(Palette("Commands", "Search for commands…", id="--command-palette"))

    def search_themes(self) -> None:
        """The palette of themes."""
        self.push_screen(Palette("Themes", "Search for themes…", [Themes]))

    async def action_quit(self) -> None:
        """Quits as the table's action does: everything is stored first."""
        self.chat_screen.leave()


def run(options: ChatOptions) -> int:
    """Runs the chat screen until the person quits; the exit code. Raises UserError before the screen is up.

    Whatever happens, the model is freed and the store has taken every write when this returns.
    """
    problems: deque[Exception] = deque()
    with Store(options.store, on_error=problems.append) as store:
        engine = Engine(options.engine)
        try:
            app = StrataApp(options, engine, store, problems)
            # A ctrl+c that comes while the terminal is given back must not end the program half-way.
            app.chat_screen.before_exit = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
            app.run(mouse=options.settings.mouse)
        finally:
            engine.close()
    chat = app.chat_screen.chat
    if chat.turns and chat.session is not None and sys.stdout.isatty():
        print(f"Go on with: strata-tui --resume {chat.session}")
    if app.chat_screen.failure:  # no model was open at the end
        raise UserError(app.chat_screen.failure)
    return app.return_code or 0
