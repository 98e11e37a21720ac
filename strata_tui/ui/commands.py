"""What the actions of the table do. One method an action, named `do_` and its id."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from textual.content import Content
from textual.css.query import NoMatches

from ..config import save
from ..engine.modes import Drafting, Modes, Pinning, Residency, StagerProfile, next_value
from ..errors import UserError
from ..term import clipboard
from ..term.editor import edit
from ..text import clean
from .actions import BY_ID
from .chats import Chats
from .completion import Choice, Source, fixed_choices, path_choices
from .help_text import help_text
from .library_commands import LibraryCommands
from .model_commands import ModelCommands
from .options_commands import OptionsCommands
from .panel_text import plan_lines
from .panels import CHATS, ENGINE
from .prompt_commands import PromptCommands
from .screens.rename import RenameScreen
from .screens.text_screen import TextScreen
from .terminal_commands import TerminalCommands
from .turn_commands import TurnCommands

if TYPE_CHECKING:
    from .screens.chat import ChatScreen

E = TypeVar("E", Pinning, StagerProfile, Residency, Drafting)
_QUIT_SECONDS = 2.0  # within which ctrl+c must be pressed again


class Commands(TurnCommands, LibraryCommands, PromptCommands, OptionsCommands, ModelCommands, TerminalCommands):
    """The chat screen's actions. An error for the person is shown as one sentence."""

    def __init__(self, screen: ChatScreen, modes: Modes) -> None:
        self._screen = screen
        self._modes = modes  # as asked for; the screen shows what the engine reports
        self._armed = 0.0  # until when ctrl+c quits
        self._writing = asyncio.Lock()
        self.chats = Chats(screen)
        self.sources: dict[str, Source] = {  # of completions of arguments; may wait for the disk
            "theme": lambda typed: [
                Choice(n) for n in [*sorted(screen.app.available_themes), "reload"] if n.startswith(typed)
            ],
            "open": lambda typed: path_choices(typed, (".gguf",)),
            "attach": path_choices,
            "export": lambda typed: [*fixed_choices(BY_ID["export"], typed), *path_choices(typed)],
            "import": lambda typed: path_choices(typed, (".json", ".zip")),
            "model": self.model_choices,
            "set": self.set_choices,
            "thinking": self.thinking_choices,
        }

    async def perform(self, action: str, argument: str = "") -> None:
        """Does an action of the table; nothing more once the program is ending."""
        if self._screen.leaving:
            return
        if action != "interrupt":
            self.disarm()
        self._screen.flash.next_action()
        method: Callable[[str], Awaitable[None] | None] = getattr(self, f"do_{action}")
        try:
            waiting = method(argument)
        except UserError as error:
            self._screen.flash.say(str(error), error=True, answers=True)
        else:
            if waiting is not None:
                await self.told(waiting)
        if action != "send":  # which looks where it is refused
            self.chats.look()

    async def told(self, work: Awaitable[None]) -> None:
        """Waits for something; what went wrong is shown as one sentence."""
        try:
            await work
        except UserError as error:
            self._screen.flash.say(str(error), error=True, answers=True)

    def keep(self, changes: Mapping[str, object]) -> None:
        """Writes settings to their file, in the order of the calls, while the screen goes on."""

        async def write() -> None:
            async with self._writing:
                await asyncio.to_thread(save, changes, self._screen.settings_file)

        self._screen.run_worker(self.told(write()), group="settings")

    # Sending and stopping

    def do_send(self, _: str) -> None:
        self._screen.prompt.submit()

    def do_new_line(self, _: str) -> None:
        self._screen.prompt.new_line()

    def do_stop(self, _: str) -> None:
        screen = self._screen
        if screen.panels.close_over():
            screen.prompt.focus()
        elif screen.turns.leave_edit():
            pass
        elif screen.turns.take_back():
            text = "Taken back; esc again stops the reply." if screen.turns.busy else "Taken back."
            screen.flash.say(text, answers=True)  # until the reply is stopped, say
        elif not self._stop():
            screen.flash.clear()
            screen.prompt.focus()

    def stop_word(self) -> str:
        """What `stop` does now, in a word or two; empty where that is nothing."""
        screen = self._screen
        if screen.panels.over is not None:
            return "close"
        if screen.turns.editing:
            return "leave"
        if screen.turns.waits:
            return "take back"
        if screen.replies.busy or screen.loader.loading:
            return "stop"
        return "" if screen.prompt.has_focus else "prompt"

    def do_interrupt(self, _: str) -> None:
        screen, prompt = self._screen, self._screen.prompt
        selected = screen.get_selected_text() or prompt.selected_text
        if selected:
            self.copy(selected, "The selection")
            screen.clear_selection()
            prompt.move_cursor(prompt.cursor_location)
        elif self._stop():
            pass
        elif prompt.text:
            prompt.clear_and_insert("")
            screen.flash.say("Cleared; ^z brings the text back, ^c again asks to quit.")
        elif time.monotonic() < self._armed:
            self.do_quit("")
        else:
            self._armed = time.monotonic() + _QUIT_SECONDS
            screen.flash.say("Press ^c again to quit.")

    def disarm(self) -> None:
        """The next ctrl+c is a first one again."""
        self._armed = 0.0

    def _stop(self) -> bool:
        screen = self._screen
        if screen.replies.stop():
            screen.sample_now()
            return True
        return screen.loader.stop()

    def do_quit(self, _: str) -> None:
        self._screen.leave()

    # Moving about

    def do_focus_next(self, _: str) -> None:
        self._screen.focus_next()

    def do_prompt(self, _: str) -> None:
        self._screen.prompt.focus()

    def do_page_up(self, _: str) -> None:
        self._screen.transcript.scroll_page_up(animate=False)

    def do_page_down(self, _: str) -> None:
        self._screen.transcript.scroll_page_down(animate=False)

    # Panels and pages

    async def do_chats(self, _: str) -> None:
        chats = self._screen.chats
        if not chats.display or chats.has_focus_within:
            self._toggle(CHATS, "sidebar")
        if chats.display:
            await self.chats.refresh()
            chats.focus_list()

    def do_engine(self, _: str) -> None:
        self._toggle(ENGINE, "panel")
        if self._screen.panels.is_over(ENGINE):
            self._screen.engine_panel.focus()

    def _toggle(self, name: str, setting: str) -> None:
        panels = self._screen.panels
        if panels.toggle(name):
            self.keep({setting: panels.beside[name]})
        if not (panels.is_beside(name) or panels.is_over(name)):
            self._screen.prompt.focus()

    def do_help(self, _: str) -> None:
        screen = self._screen
        text = partial(help_text, screen.keymap, settings=screen.settings_file)
        screen.app.push_screen(TextScreen("Keys and commands", text))

    def do_plan(self, _: str) -> None:
        if not self._screen.plan:
            raise UserError("There is no memory plan: no model is loaded.")
        plan = self._screen.plan
        self._screen.app.push_screen(
            TextScreen("Memory plan", lambda width: Content("\n").join(plan_lines(plan, width)))
        )

    def do_palette(self, _: str) -> None:
        self._screen.app.action_command_palette()

    def do_theme(self, name: str) -> None:
        app = self._screen.app
        if not name:
            app.search_themes()
        elif name == "reload":
            notice = self._screen.reload_themes()
            self._screen.flash.say(notice or "The theme files were read again.", error=bool(notice))
        elif name in app.available_themes:
            app.theme = name
        else:
            raise UserError(f"There is no theme {name}; there are {', '.join(sorted(app.available_themes))}.")

    # Engine

    def do_pin(self, value: str) -> None:
        pinning = _parse(Pinning, value, self._modes.pinning, "Pinning")
        self._set_modes(replace(self._modes, pinning=pinning), f"Pinning: {pinning.value} asked for")

    def do_stager(self, value: str) -> None:
        stager = _parse(StagerProfile, value, self._modes.stager, "The stager")
        self._set_modes(replace(self._modes, stager=stager), f"Stager: {stager.value} asked for")

    def do_residency(self, value: str) -> None:
        residency = _parse(Residency, value, self._modes.residency, "Residency")
        self._set_modes(replace(self._modes, residency=residency), f"Residency: {residency.value} asked for")

    def do_draft(self, value: str) -> None:
        draft = _parse(Drafting, value, self._modes.draft, "Drafts")
        self._set_modes(replace(self._modes, draft=draft), f"Drafts: {draft.value} asked for")

    def _set_modes(self, modes: Modes, news: str) -> None:
        self._modes = modes
        self._screen.engine.set_modes(modes)
        self._screen.flash.say(
            f"{news}; the engine panel ({self._screen.key_of('engine', '/engine')}) shows what is in force."
        )
        self._screen.sample_now()
        self.keep({f.name: getattr(modes, f.name) for f in fields(Modes)})

    # Chats

    async def do_new(self, _: str) -> None:
        await self.chats.new()

    do_new_chat = do_new

    def do_chats_up(self, _: str) -> None:
        self._screen.chats.move(-1)

    def do_chats_down(self, _: str) -> None:
        self._screen.chats.move(1)

    async def do_open_chat(self, _: str) -> None:
        await self.chats.open(self.chats.chosen())

    async def do_rename(self, title: str) -> None:
        await self._rename(self._screen.chat.session, title)

    async def do_rename_chat(self, _: str) -> None:
        await self._rename(self.chats.chosen(), "")

    async def _rename(self, session: int | None, title: str) -> None:
        if title:
            await self.chats.rename(session, title)
            return

        async def keep(answer: str | None) -> None:
            if answer:
                await self.told(self.chats.rename(session, answer))

        self._screen.app.push_screen(RenameScreen(self.chats.title_of(session)), keep)

    async def do_delete(self, _: str) -> None:
        await self.chats.delete(self._screen.chat.session)

    async def do_delete_chat(self, _: str) -> None:
        await self.chats.delete(self.chats.chosen())

    async def do_undelete(self, _: str) -> None:
        await self.chats.undelete()

    do_undelete_chat = do_undelete

    async def open_session(self, session: int) -> None:
        """Opens a chat by its id."""
        await self.told(self.chats.open(session))

    def keep_theme(self, name: str) -> None:
        """The theme was changed: it is kept for the next start."""
        self.keep({"theme": name})

    # Text out

    def do_editor(self, _: str) -> None:
        prompt = self._screen.prompt
        with self._screen.app.suspend():
            text = edit(prompt.text)
        if text is not None:
            prompt.clear_and_insert(text)

    def copy(self, text: str, what: str, tell: Callable[[str], None] | None = None) -> None:
        """Copies a text, and says what was done with it: `tell` does on a page that covers the chat."""
        text = clean(text)
        if clipboard.fits_terminal(text):
            self._screen.take_copy(text)
        self._screen.run_worker(self.told(self._copied(text, what, tell or self._screen.flash.say)), group="copy")

    async def _copied(self, text: str, what: str, tell: Callable[[str], None]) -> None:
        sequences: list[str] = []
        result = await asyncio.to_thread(clipboard.copy, text, sequences.append)
        wrapped = "".join(sequences)
        if wrapped.startswith("\x1bP") and sys.__stderr__ is not None:  # for a multiplexer; the bare one was sent
            sys.__stderr__.write(wrapped)  # where Textual draws, and from its thread
            sys.__stderr__.flush()
        news = f"{what}: {result.message}."
        try:
            tell(news)
        except NoMatches:  # the page is gone
            self._screen.flash.say(news)


def _parse(kind: type[E], text: str, now: E, name: str) -> E:
    """The value a person typed, or the next one when nothing was typed."""
    if not text:
        return kind(next_value(now).value)
    try:
        return kind(text.lower())
    except ValueError:
        raise UserError(f"{name} can be {', '.join(str(m.value) for m in kind)}; not {text}.") from None
