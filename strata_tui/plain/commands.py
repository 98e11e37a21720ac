"""The slash commands of the plain chat: those of the screen that make sense in lines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from ..config import save
from ..engine.modes import Drafting, Modes, Pinning, Residency, StagerProfile
from ..errors import UserError
from ..parameters import BY_NAME, PARAMETERS, Scope, Source, checked, named, shown, typed_value
from ..sessions.bin import days_left
from ..sessions.imports import read_file as read_chats
from ..sessions.imports import take_in
from ..sessions.rows import SessionInfo
from ..term.editor import edit
from ..ui.actions import ACTIONS, BY_SLASH, SlashCommand
from ..ui.attachments import Attachment, joined, read_file
from ..ui.export import export_chat, parse_wish
from ..ui.format import size
from ..ui.shelf import Shelf
from .room import RoomCommands
from .talk import Talk
from .turns import TurnCommands

_MOST_CHATS = 20
_MOST_HITS = 20
E = TypeVar("E", bound=Enum)
# What a command says here where it says more or less than on the screen.
_LABELS = {
    "chats": ("[ID]", "List the chats, or open the one of that number"),
    "think": ("on|off", "Write the thinking out, or only that there was some"),
    "model": ("[NAME]", "List the models, or load one"),
    "options": ("", "List the options with their values"),
    "make_room": ("N", "Room in the context: list the ways, or take one"),
    "plan": ("", "Show the memory plan, and the last reply's numbers"),
    "edit": ("TEXT", "Send a text in the place of your last message, as a branch of its own"),
    "bin": ("[ID]", "List the deleted chats, or bring the one of that number back"),
    "fork": ("", "Go on in a copy of this chat"),
    "set": ("[model|all] NAME VALUE", "Set an option of this chat, of the model or of all chats"),
}


class Quit(Exception):
    """The person has said /quit."""


class PlainCommands(RoomCommands, TurnCommands):
    """One method a command, named `do_` and the action's id."""

    def __init__(self, talk: Talk, shelf: Shelf, settings_file: Path, modes: Modes) -> None:
        self._talk = talk
        self._say = talk.lines.say
        self._shelf = shelf
        self._settings_file = settings_file
        self._modes = modes
        self.attached: list[Attachment] = []  # goes with the next message

    def perform(self, command: SlashCommand) -> None:
        """Does a command. Raises UserError and Quit."""
        action = command.action
        method: Callable[[str], None] | None = getattr(self, f"do_{action.id}", None) if action else None
        if action is None:
            raise UserError(f"There is no command {command.name}; /help lists them, // sends it as text.")
        if method is None:
            raise UserError(f"{command.name} is for the screen and does nothing here; /help lists what there is.")
        method(command.argument)

    def do_help(self, _: str) -> None:
        self._say("Write a message and press enter. A line that ends with a backslash goes on in the next;")
        self._say('three quotes (""") alone on a line begin and end a message of several lines.')
        self._say("ctrl+c stops a reply. The commands:")
        for action in sorted(ACTIONS, key=lambda action: action.slash):
            if action.slash and hasattr(self, f"do_{action.id}"):
                argument, label = _LABELS.get(action.id, (action.argument, action.label))
                self._say(f"  {f'/{action.slash} {argument}'.rstrip()}: {label}")

    do_palette = do_help

    def do_quit(self, _: str) -> None:
        raise Quit

    # Chats

    def do_new(self, _: str) -> None:
        self._talk.begin()
        self._say("A new chat.")

    def do_chats(self, number: str) -> None:
        if number:
            self._open(number)
            return
        chats = self._talk.store.list_sessions()
        for info in chats[:_MOST_CHATS]:
            here = ", this one" if info.id == self._talk.session else ""
            self._say(f"  {info.id}: {info.title or 'untitled'} ({info.messages} messages{here})")
        if len(chats) > _MOST_CHATS:
            self._say(f"  and {len(chats) - _MOST_CHATS} older ones: strata-tui sessions lists all.")
        self._say("/chats and a number opens one." if chats else "There are no chats yet.")

    def _open(self, number: str) -> None:
        if not (number.isascii() and number.isdigit()):
            raise UserError(f"{number} is no chat's number: /chats lists them.")
        info = self._talk.store.session(int(number))
        if info.deleted_at is not None:
            raise UserError(f"Chat {info.id} was deleted: /undo brings back the last one.")
        self.open(info)

    def open(self, info: SessionInfo) -> None:
        """Shows a chat: its title, and how it ended."""
        self._talk.show(info)
        rows = self._talk.rows()
        self._say(f"Chat {info.id}: {info.title or 'untitled'}, {len(rows)} messages.")
        if self._talk.elsewhere is not None:
            self._say(f"It is open in another window (process {self._talk.elsewhere}): /fork goes on in a copy.")
        self.show_end()

    def do_rename(self, title: str) -> None:
        if not title:
            raise UserError("Say the title: /rename TITLE.")
        if self._talk.session is not None:
            self._talk.store.rename(self._talk.session, title).result()
        self._talk.title = title
        self._say("Renamed.")

    def do_delete(self, _: str) -> None:
        if self._talk.session is None:
            raise UserError("This chat is new: there is nothing to delete.")
        self._talk.store.delete(self._talk.session).result()
        self._talk.begin()
        self._say("Deleted; /undo brings it back. This is a new chat.")

    def do_undelete(self, _: str) -> None:
        gone = [info.id for info in self._talk.store.list_sessions(deleted=True)]  # the one deleted last first
        if not gone:
            raise UserError("No chat was deleted.")
        self._restore(gone[0])

    def do_bin(self, number: str) -> None:
        gone = self._talk.store.list_sessions(deleted=True)
        if number:
            if number not in {str(info.id) for info in gone}:
                raise UserError(f"There is no deleted chat {number}: /bin lists them.")
            self._restore(int(number))
            return
        for info in gone:
            assert info.deleted_at is not None
            left = days_left(info.deleted_at, time.time())
            self._say(f"  {info.id}: {info.title or 'untitled'} ({info.messages} messages, {left} days left)")
        self._say("/bin and a number brings one back." if gone else "No deleted chats.")

    def _restore(self, session: int) -> None:
        self._talk.store.restore(session).result()
        self.open(self._talk.store.session(session))

    def do_pin_chat(self, _: str) -> None:
        if self._talk.session is None:
            raise UserError("This chat is new: there is nothing to keep on top yet.")
        pinned = not self._talk.store.session(self._talk.session).pinned
        self._talk.store.set_pinned(self._talk.session, pinned).result()
        self._say("Kept on top of the list." if pinned else "No longer kept on top of the list.")

    def do_search(self, words: str) -> None:
        if not words:
            raise UserError("Say what to search for: /search WORDS.")
        hits = self._talk.store.search(words, _MOST_HITS)
        for hit in hits:
            line = "".join(piece for piece, _ in hit.snippet)
            self._say(f"  {hit.session}: {hit.title or 'untitled'}: {line}")
        self._say("/chats and a number opens one." if hits else "Nothing was found.")

    def do_fork(self, _: str) -> None:
        if self._talk.session is None:
            raise UserError("This chat is empty: there is nothing to fork.")
        self.open(self._talk.store.session(self._talk.store.fork(self._talk.session).result()))

    def do_export(self, argument: str) -> None:
        if self._talk.session is None:
            raise UserError("This chat is empty: there is nothing to export.")
        written = asyncio.run(export_chat(self._talk.store, self._talk.session, parse_wish(argument)))
        self._say(f"Written to {written}")

    def do_import(self, path: str) -> None:
        if not path:
            raise UserError("Name the file: /import PATH, of ChatGPT, llama.cpp's web interface or our own JSON.")
        self._say(take_in(self._talk.store, read_chats(Path(path).expanduser())))

    # The message

    def send(self, text: str) -> None:
        """Sends a message with what is attached."""
        message = joined(text, self.attached)
        if message.strip():
            self._talk.send(message)
            self.attached.clear()

    def do_editor(self, _: str) -> None:
        self._talk.ready()
        text = edit("")
        if text is not None and text.strip():
            self.send(text)

    def do_attach(self, path: str) -> None:
        if not path:
            raise UserError("Say which file: /attach PATH.")
        self.attached.append(read_file(Path(path).expanduser(), path))
        self._say(f"{self.attached[-1].label} goes with the next message.")

    def do_detach(self, _: str) -> None:
        if not self.attached:
            raise UserError("Nothing is attached.")
        self._say(f"Removed: {self.attached.pop().label}")

    def do_think(self, word: str) -> None:
        self._talk.show_thinking = word.lower() == "on" if word else not self._talk.show_thinking
        self._say("Thinking is written out." if self._talk.show_thinking else "Thinking is only named.")

    # Models and options

    def do_model(self, name: str) -> None:
        if name:
            self.load(self._shelf.path_of(name))
            return
        models = [one for one in self._shelf.all() if one.found.info is not None]
        for one in models:
            info = one.found.info
            assert info is not None
            fits = "" if one.plan else ", does not fit here"
            self._say(f"  {one.found.name}: {size(info.file_bytes)}, {info.quantization}, {one.found.kind.value}{fits}")
        self._say("/model and a name, or a part of it, loads one." if models else "No models were found.")

    def do_open(self, path: str) -> None:
        if not path:
            raise UserError("Say which file: /open PATH, or /model NAME.")
        self.load(Path(path).expanduser())

    def load(self, path: Path) -> None:
        """Loads a model, and says what it is."""
        self._talk.load(path)
        model = self._talk.model
        if model is not None:
            self._say(f"{model.name}, {model.quantization}, is ready; its context holds {model.context} tokens.")

    def do_options(self, _: str) -> None:
        for parameter in PARAMETERS:
            self._tell(parameter.name)

    def do_set(self, line: str) -> None:
        words = line.split(maxsplit=1)
        scope = Scope.CHAT
        if words and words[0].lower() in tuple(s.value for s in Scope):
            scope = Scope(words[0].lower())
            words = words[1].split(maxsplit=1) if len(words) > 1 else []
        if not words:
            self.do_options("")
            return
        name = named(words[0]).name
        if len(words) > 1:
            value = typed_value(name, words[1], self._talk.model)
            if scope is Scope.CHAT:
                self._put(name, value)
            else:
                self._keep(scope, name, value)
        self._tell(name)

    def do_system(self, text: str) -> None:
        if text:
            self._put("system", text)
        self._tell("system")

    def do_thinking(self, word: str) -> None:
        if word:
            self._put("thinking", typed_value("thinking", word, self._talk.model))
        self._tell("thinking")
        model = self._talk.model
        if model is not None and not model.thinking:
            self._say(f"  {model.name}'s chat template has no choice of thinking.")
        elif model is not None and not word:
            self._say(f"  It can be {', '.join((*model.thinking, 'auto'))}: /thinking and one of these.")

    def _put(self, name: str, value: Any) -> None:
        talk = self._talk
        if name == "system":
            talk.system = "" if value is None else str(value)
            if talk.session is not None:
                talk.store.set_system(talk.session, talk.system).result()
            return
        if value is None:
            talk.options.pop(name, None)
        else:
            talk.options[name] = value
        if talk.session is not None:
            talk.store.set_options(talk.session, talk.options).result()

    def _keep(self, scope: Scope, name: str, value: Any) -> None:
        talk, layers = self._talk, self._talk.layers
        before = layers.value("system", talk.model, {}).value
        section = layers.keep(scope, name, value, talk.model)
        save({name: value}, self._settings_file, section)
        if name == "system" and talk.system == before:
            self._put(name, layers.value(name, talk.model, {}).value)

    def _tell(self, name: str) -> None:
        talk = self._talk
        if name == "system":
            inherited = talk.layers.value("system", talk.model, {})
            source = inherited.source if talk.system == inherited.value else Source.CHAT
            value: object = talk.system or "none"
        else:
            found = talk.layers.value(name, talk.model, checked(talk.options))
            value, source = found.value, found.source
        self._say(f"  {BY_NAME[name].label}: {shown(value)} ({talk.layers.origin(name, source)})")

    # The engine

    def do_plan(self, _: str) -> None:
        from ..commands.stats import stats_lines

        for line in self._talk.plan:
            about = ", ".join(filter(None, (size(line.bytes) if line.bytes is not None else "", line.note)))
            self._say(f"  {line.label}: {about}")
        if self._talk.last is not None:
            for text in stats_lines(self._talk.last.stats):
                self._say(f"  {text}")

    def do_pin(self, value: str) -> None:
        self._switch("pinning", Pinning, value)

    def do_stager(self, value: str) -> None:
        self._switch("stager", StagerProfile, value)

    def do_residency(self, value: str) -> None:
        self._switch("residency", Residency, value)

    def do_draft(self, value: str) -> None:
        self._switch("draft", Drafting, value)

    def _switch(self, name: str, kind: type[E], text: str) -> None:
        words = ", ".join(str(member.value) for member in kind)
        if not text:
            self._say(f"  {name}: {getattr(self._modes, name).value}; it can be {words}.")
            return
        try:
            value = kind(text.lower())
        except ValueError:
            raise UserError(f"{name} can be {words}; not {text}.") from None
        self._modes = replace(self._modes, **{name: value})  # type: ignore[arg-type]
        self._talk.engine.set_modes(self._modes)
        save({f.name: getattr(self._modes, f.name) for f in fields(Modes)}, self._settings_file)
        self._say(f"{name}: {text} is asked for, from the next round on.")


assert set(_LABELS) <= {action.id for action in BY_SLASH.values()}
