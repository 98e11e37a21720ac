"""The one table of actions. Key bindings, help, palette and slash commands are all made from it.

Every action has at least two routes, because terminals and multiplexers swallow many keys: an F-key or
a plain letter that arrives everywhere, a slash command, and the palette. Never bound: F10, F11, anything
with ctrl+shift, ctrl+a/b/h/i/m, ctrl+tab and alt with a digit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.binding import Binding


class Where(Enum):
    """The area that must have focus for an action's keys to count; the value is the help's heading."""

    CHAT = "Everywhere"
    PROMPT = "In the prompt"
    ATTACHMENTS = "On the attachments (shift+tab from the prompt)"
    TRANSCRIPT = "In the transcript"
    CHATS = "In the list of chats"
    PAGES = "On pages over the chat"
    MODELS = "On the models"
    OPTIONS = "On the options"
    ROOM = "While making room in the context"
    LEAVING_OUT = "On the messages to leave out"
    EDIT = "While editing the system prompt"
    LOG = "In the engine log"
    TEXT = "On pages of text"
    LISTS = "On lists over the chat"
    BIN = "On the deleted chats"
    EXPORT = "While exporting"
    SEARCH = "While searching"

    @property
    def over(self) -> bool:
        """Whether it covers the chat, whose keys do not count then."""
        return Where.PAGES in (self, *self.around)

    @property
    def around(self) -> tuple[Where, ...]:
        """The areas whose keys count in this one, too."""
        if self in (Where.PROMPT, Where.ATTACHMENTS, Where.TRANSCRIPT, Where.CHATS):
            return (Where.CHAT,)
        if self in (Where.OPTIONS, Where.ROOM, Where.LEAVING_OUT, Where.BIN, Where.EXPORT):
            return (Where.LISTS, Where.PAGES)
        return () if self in (Where.CHAT, Where.PAGES) else (Where.PAGES,)


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a person can do.

    `label` is a short sentence for help and palette; `slash` the command's name without its slash, with
    `argument` describing what may follow; `footer` a word for the footer, empty to leave it out there.
    """

    id: str
    label: str
    keys: tuple[str, ...] = ()
    slash: str = ""
    argument: str = ""
    footer: str = ""
    where: Where = Where.CHAT
    palette: bool = True

    @property
    def usage(self) -> str:
        """The slash command with its argument, or nothing."""
        return f"/{self.slash} {self.argument}".rstrip() if self.slash else ""


ACTIONS: tuple[Action, ...] = (
    Action("send", "Send the message", ("enter",), footer="send", where=Where.PROMPT, palette=False),
    Action(
        "new_line",
        "Start a new line (also: \\ and then enter)",
        ("ctrl+j", "shift+enter", "alt+enter"),
        footer="line",
        where=Where.PROMPT,
        palette=False,
    ),
    Action("stop", "Close what is on top, else stop", ("escape",), "stop", footer="stop"),
    Action("chats", "Go to the chats, or hide them", ("f2", "alt+s"), "chats", footer="chats"),
    Action("palette", "All actions", ("ctrl+p", "alt+p"), footer="commands", palette=False),
    Action("engine", "Show or hide the engine panel", ("f4", "alt+e"), "engine", footer="engine"),
    Action("focus_next", "Go to the next area", ("tab",), footer="area", palette=False),
    Action("new", "Start a new chat", ("ctrl+n", "alt+n"), "new", footer="new"),
    Action("search", "Search all chats", ("ctrl+r",), "search", "WORDS", footer="search"),
    Action("model", "Choose a model, or load one", ("alt+m",), "model", "NAME", footer="model"),
    Action("options", "Options for this chat, the model, or all", ("alt+o",), "options", "NAME", footer="options"),
    Action("help", "Keys, commands, settings file", ("f1",), "help", footer="help"),
    Action("interrupt", "Copy, else stop, clear, quit", ("ctrl+c",), palette=False),
    Action("pin", "Pinning: next mode, or the one named", ("f7",), "pin", "auto|on|off", footer="pin"),
    Action("stager", "Stager: next mode, or the one named", ("f8",), "stager", "auto|ram|ssd", footer="stager"),
    Action(
        "residency",
        "Residency: next mode, or the one named",
        ("f9",),
        "residency",
        "lru|adaptive|frozen",
        footer="residency",
    ),
    Action("draft", "Drafts: next mode, or the one named", ("f6",), "draft", "auto|off|1..4", footer="drafts"),
    Action("rename", "Rename this chat", (), "rename", "TITLE"),
    Action("pin_chat", "Keep this chat on top, or not", (), "pinchat"),
    Action("fork", "Fork the chat here, as a new one", (), "fork"),
    Action("delete", "Delete this chat (/undo restores it)", (), "delete"),
    Action("undelete", "Bring the deleted chat back", ("alt+u",), "undo"),
    Action("bin", "Deleted chats: restore, remove", (), "bin"),
    Action("export", "Export this chat (also: tree, PATH)", ("alt+x",), "export", "md|html|json"),
    Action("import", "Import chats from other programs", (), "import", "PATH"),
    Action("editor", "Write the message in your editor", ("ctrl+g",), "editor"),
    Action("attach", "Attach a text file (also: type @)", (), "attach", "PATH"),
    Action("detach", "Remove an attachment", (), "detach", "N"),
    Action("copy", "Copy the last reply, or its code", ("alt+y",), "copy", "code [N]"),
    Action("edit", "Edit your last message, send it again", (), "edit"),
    Action("regenerate", "Have the last reply written again", ("alt+r",), "regen"),
    Action("go_on", "Go on with the last reply", (), "continue"),
    Action("make_room", "Make room in the context", (), "room"),
    Action("branch", "Show another branch", (), "branch", "next|prev|N"),
    Action("think", "Fold or unfold thinking", ("alt+t",), "think"),
    Action("set", "Set an option: chat, model, all", (), "set", "NAME VALUE"),
    Action("system", "This chat's system prompt", (), "system", "TEXT"),
    Action("thinking", "This chat's thinking: next mode, or the one named", ("alt+k",), "thinking", "MODE"),
    Action("plan", "Show the memory plan", (), "plan"),
    Action("pull", "Fetch from the Hugging Face Hub", (), "pull", "REPO:QUANT"),
    Action("open", "Load the model again, or another", (), "open", "PATH"),
    Action("log", "The engine's log", ("f12",), "log"),
    Action("keys", "What the terminal sends", (), "keys"),
    Action("mouse", "Mouse on or off", (), "mouse", "on|off"),
    Action("redraw", "Draw the screen anew", ("ctrl+l",), "redraw"),
    Action("suspend", "Back to the shell; fg returns", (), "suspend"),
    Action("theme", "Choose a theme", (), "theme", "NAME|reload"),
    Action("messages", "To the messages, to select one", ("alt+up",), palette=False),
    Action("page_up", "Scroll the transcript up", ("pageup",), palette=False),
    Action("page_down", "Scroll the transcript down", ("pagedown",), palette=False),
    Action("follow", "To the end, and follow it", ("ctrl+end",), "end"),
    Action("quit", "Quit", ("ctrl+q",), "quit"),
    Action("attachment_left", "The one before", ("left", "h"), where=Where.ATTACHMENTS, palette=False),
    Action("attachment_right", "The one after", ("right", "l"), where=Where.ATTACHMENTS, palette=False),
    Action("attachment_open", "Read it", ("enter", "space"), footer="open", where=Where.ATTACHMENTS, palette=False),
    Action("attachment_remove", "Remove it", ("delete", "x"), footer="remove", where=Where.ATTACHMENTS, palette=False),
    Action(
        "attachment_insert",
        "Put its text into the prompt",
        ("p",),
        footer="unfold",
        where=Where.ATTACHMENTS,
        palette=False,
    ),
    Action("history_older", "What was sent before", ("ctrl+up",), where=Where.PROMPT, palette=False),
    Action("history_newer", "What was sent after that", ("ctrl+down",), where=Where.PROMPT, palette=False),
    Action("message_up", "The message above", ("up", "k"), where=Where.TRANSCRIPT, palette=False),
    Action("message_down", "The message below", ("down", "j"), where=Where.TRANSCRIPT, palette=False),
    Action("top", "To the start", ("home", "g"), where=Where.TRANSCRIPT, palette=False),
    Action("follow_here", "To the end, and follow it", ("end", "G"), where=Where.TRANSCRIPT, palette=False),
    Action("prompt", "Back to the prompt", ("i",), where=Where.TRANSCRIPT, palette=False),
    Action("copy_here", "Copy the message", ("y",), footer="copy", where=Where.TRANSCRIPT, palette=False),
    Action("code_here", "Copy a code block of it", ("c",), footer="code", where=Where.TRANSCRIPT, palette=False),
    Action("edit_here", "Edit it and send it again", ("e",), footer="edit", where=Where.TRANSCRIPT, palette=False),
    Action("regenerate_here", "Another reply", ("r",), footer="again", where=Where.TRANSCRIPT, palette=False),
    Action("go_on_here", "Go on with the reply", ("m",), footer="more", where=Where.TRANSCRIPT, palette=False),
    Action(
        "branch_previous",
        "The branch before",
        ("left_square_bracket", "left"),
        footer="branch",
        where=Where.TRANSCRIPT,
        palette=False,
    ),
    Action("branch_next", "The branch after", ("right_square_bracket", "right"), where=Where.TRANSCRIPT, palette=False),
    Action("fork_here", "Fork the chat here", ("f",), footer="fork", where=Where.TRANSCRIPT, palette=False),
    Action("leave_out_here", "Leave it out, or send it again", ("x",), where=Where.TRANSCRIPT, palette=False),
    Action("fold_here", "Fold or unfold thinking", ("space", "enter"), where=Where.TRANSCRIPT, palette=False),
    Action("search_here", "Search all chats", ("slash",), where=Where.TRANSCRIPT, palette=False),
    Action("chats_up", "Up", ("up", "k"), where=Where.CHATS, palette=False),
    Action("chats_down", "Down", ("down", "j"), where=Where.CHATS, palette=False),
    Action("open_chat", "Open", ("enter",), footer="open", where=Where.CHATS, palette=False),
    Action("new_chat", "New", ("n",), footer="new", where=Where.CHATS, palette=False),
    Action("filter_chats", "Filter by title", ("f",), footer="filter", where=Where.CHATS, palette=False),
    Action("search_chats", "Search all chats", ("slash",), footer="search", where=Where.CHATS, palette=False),
    Action("rename_chat", "Rename", ("r",), footer="rename", where=Where.CHATS, palette=False),
    Action("pin_listed", "Keep on top, or not any more", ("p",), footer="pin", where=Where.CHATS, palette=False),
    Action(
        "delete_chat", "Delete (u brings it back)", ("d", "delete"), footer="delete", where=Where.CHATS, palette=False
    ),
    Action("page_close", "Close", ("escape",), footer="close", where=Where.PAGES, palette=False),
    Action("models_up", "Up", ("up",), where=Where.MODELS, palette=False),
    Action("models_down", "Down", ("down",), where=Where.MODELS, palette=False),
    Action("models_page_up", "A page up", ("pageup",), where=Where.MODELS, palette=False),
    Action("models_page_down", "A page down", ("pagedown",), where=Where.MODELS, palette=False),
    Action("models_again", "Look again", ("ctrl+r",), where=Where.MODELS, palette=False),
    Action("options_change", "Change", ("enter",), footer="change", where=Where.OPTIONS, palette=False),
    Action("options_take_back", "Take back what is set", ("delete", "x"), where=Where.OPTIONS, palette=False),
    Action("options_next", "For: chat, model, all", ("right", "l"), where=Where.OPTIONS, palette=False),
    Action("options_previous", "The same, backwards", ("left", "h"), where=Where.OPTIONS, palette=False),
    Action("room_larger", "A larger context", ("1",), where=Where.ROOM, palette=False),
    Action("room_fork", "A new chat with what fits", ("2",), where=Where.ROOM, palette=False),
    Action("room_leave", "Leave messages out", ("3",), where=Where.ROOM, palette=False),
    Action("leaving_change", "Leave it out, or send it", ("space", "x"), where=Where.LEAVING_OUT, palette=False),
    Action("leaving_done", "Confirm", ("enter",), where=Where.LEAVING_OUT, palette=False),
    Action("log_level", "Next level", ("f12", "l"), footer="level", where=Where.LOG, palette=False),
    Action("log_copy", "Copy what is shown, or the selection", ("y",), where=Where.LOG, palette=False),
    Action("log_up", "Up", ("up", "k"), where=Where.LOG, palette=False),
    Action("log_down", "Down", ("down", "j"), where=Where.LOG, palette=False),
    Action("log_page_up", "A page up", ("pageup",), where=Where.LOG, palette=False),
    Action("log_page_down", "A page down", ("pagedown", "space"), where=Where.LOG, palette=False),
    Action("log_end", "To the end, and follow it", ("end", "G"), where=Where.LOG, palette=False),
    Action("edit_keep", "Keep", ("ctrl+s",), footer="keep", where=Where.EDIT, palette=False),
    Action("edit_editor", "Your editor", ("ctrl+g",), footer="editor", where=Where.EDIT, palette=False),
    Action("text_close", "Close", ("q", "f1"), where=Where.TEXT, palette=False),
    Action("text_up", "Up", ("up", "k"), where=Where.TEXT, palette=False),
    Action("text_down", "Down", ("down", "j"), where=Where.TEXT, palette=False),
    Action("text_page_up", "A page up", ("pageup",), where=Where.TEXT, palette=False),
    Action("text_page_down", "A page down", ("pagedown", "space"), where=Where.TEXT, palette=False),
    Action("text_top", "To the start", ("home", "g"), where=Where.TEXT, palette=False),
    Action("text_end", "To the end", ("end", "G"), where=Where.TEXT, palette=False),
    Action("list_up", "Up", ("up", "k"), where=Where.LISTS, palette=False),
    Action("list_down", "Down", ("down", "j"), where=Where.LISTS, palette=False),
    Action("bin_restore", "Bring back", ("enter", "u"), footer="restore", where=Where.BIN, palette=False),
    Action("bin_remove", "Remove for good", ("d", "delete"), footer="remove", where=Where.BIN, palette=False),
    Action("bin_empty", "Remove all for good", ("e",), footer="empty", where=Where.BIN, palette=False),
    Action("bin_close", "Close", ("b",), where=Where.BIN, palette=False),
    Action("export_write", "Write it", ("enter",), footer="write", where=Where.EXPORT, palette=False),
    Action("export_thinking", "With thinking, or without", ("t",), where=Where.EXPORT, palette=False),
    Action("search_up", "Up", ("up",), where=Where.SEARCH, palette=False),
    Action("search_down", "Down", ("down",), where=Where.SEARCH, palette=False),
    Action("search_page_up", "A page up", ("pageup",), where=Where.SEARCH, palette=False),
    Action("search_page_down", "A page down", ("pagedown",), where=Where.SEARCH, palette=False),
    Action("undelete_chat", "Bring back the one deleted last", ("u",), footer="undo", where=Where.CHATS, palette=False),
    Action("bin_chats", "The deleted chats", ("b",), footer="bin", where=Where.CHATS, palette=False),
)

BY_ID = {action.id: action for action in ACTIONS}
BY_SLASH = {action.slash: action for action in ACTIONS if action.slash}


def bindings(where: Where) -> list[Binding]:
    """The bindings of one area. All call `perform` on the screen."""
    from textual.binding import Binding  # here, because the plain chat uses the table, too

    return [
        Binding(
            ",".join(action.keys),
            f"screen.perform('{action.id}')",
            action.footer or action.label,
            show=bool(action.footer),
            key_display=key_name(action.keys[0]),
            id=action.id,
            tooltip=action.label,
        )
        for action in ACTIONS
        if action.where is where and action.keys
    ]


_NAMES = {
    "escape": "esc",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "delete": "del",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "slash": "/",
}


def key_name(key: str) -> str:
    """A key as help and footer show it: `^n`, `alt+x`, `f2`."""
    if key.startswith("ctrl+"):
        return "^" + key.removeprefix("ctrl+")
    return _NAMES.get(key, key)


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """What a line starting with a slash asks for; `action` None: there is no such command."""

    name: str
    action: Action | None
    argument: str = ""


def parse_slash(text: str) -> SlashCommand | None:
    """The command in a prompt's text, or None where the text is a message.

    A command is one line whose first word is a slash and letters only, so that a path such as
    /etc/fstab, or a text of several lines, is a message. `//word` is the message `/word`.
    """
    first, _, rest = text.strip().partition(" ")
    if "\n" in text.strip() or not first.startswith("/") or not (first[1:].isalpha() or first == "/"):
        return None
    action = BY_ID["palette"] if first == "/" else BY_SLASH.get(first[1:].lower())
    return SlashCommand(first, action, rest.strip())


def as_message(text: str) -> str:
    """The message in a prompt's text: outer blank lines removed, and the `//` escape undone."""
    text = text.strip()
    return text[1:] if text.startswith("//") and text[2:3].isalpha() else text


def completions(text: str) -> list[Action]:
    """The slash commands that start as this text does; none when the text is no start of a command."""
    if not text.startswith("/") or not (text[1:].isalpha() or text == "/"):
        return []
    return [action for name, action in sorted(BY_SLASH.items()) if name.startswith(text[1:].lower())]
