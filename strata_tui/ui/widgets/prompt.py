"""The prompt: several lines of text, in which enter sends, and what is attached to it."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Key, Paste
from textual.message import Message
from textual.widgets import TextArea

from ...text import clean
from ..actions import Where, as_message, bindings, completions, parse_slash
from ..attachments import PASTE_LIMIT, Attachment, attachment, joined, parted
from ..bursts import HOLD_SECONDS, Burst
from ..keymap import DEFAULT, Keymap
from ..prompt_history import PromptHistory
from .menu import Menu

# Keys that the text area would keep from the app's own bindings (ctrl+c is a ladder of the screen).
_GIVEN_UP = {"f6", "f7", "ctrl+d", "pageup", "pagedown", "ctrl+c", "super+c"}


def _kept(entries: list[BindingType]) -> list[BindingType]:
    """The text area's bindings without the keys given up."""
    kept: list[BindingType] = []
    for entry in entries:
        binding = entry if isinstance(entry, Binding) else Binding(*entry)
        keys = [key for key in binding.key.split(",") if key.strip() not in _GIVEN_UP]
        if keys:
            kept.append(Binding(",".join(keys), binding.action, binding.description, show=False))
    return kept


class Prompt(TextArea, inherit_bindings=False):
    """A TextArea in which enter sends; ctrl+j, or a backslash and enter, starts a line.

    Both keys are handled here, among the typed characters, and not by a binding with priority: such a
    binding runs before characters that were typed earlier and are still waiting. For the same reason the
    keys of the menu, which never has the focus, are handled here.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*_kept(TextArea.BINDINGS), *bindings(Where.PROMPT)]

    class Submitted(Message):
        """Enter was pressed; the text, with what is attached, has been taken out of the prompt."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class AttachmentsChanged(Message):
        """Something was attached or removed."""

    class MenuWanted(Message):
        """A line of the menu was chosen. `submit`: enter was pressed, which sends what needs no more."""

        def __init__(self, submit: bool) -> None:
            super().__init__()
            self.submit = submit

    class Recalled(Message):
        """Up was pressed in an empty prompt."""

    class MenuLeft(Message):
        """The menu was closed by a key."""

    def __init__(self, id: str | None = None, menu: Menu | None = None, keymap: Keymap = DEFAULT) -> None:
        super().__init__(
            id=id,
            soft_wrap=True,
            tab_behavior="focus",
            highlight_cursor_line=False,
            placeholder="Message, / for commands, @ for files",
        )
        self.sent = PromptHistory()
        self._menu = menu
        self._keymap = keymap
        self._attached: list[Attachment] = []
        self._burst = Burst()
        self._held = 0  # a number for each enter that waits for what follows it; 0: none waits

    def on_mount(self) -> None:
        self.border_title = "Prompt"

    # Keys

    async def on_key(self, event: Key) -> None:
        held, self._held = self._held, 0
        self._burst.key(event)
        if held:
            if self._burst.pasting:
                self.new_line()
            else:
                self.submit()
        if self._menu is not None and self._menu.open and self._menu_key(event.key, self._menu):
            event.stop()
            event.prevent_default()
        elif event.key in self._keymap.of("send"):
            event.stop()
            event.prevent_default()
            self._enter()
        elif event.key in self._keymap.of("new_line"):
            event.stop()
            event.prevent_default()
            self.new_line()
        elif event.key in self._keymap.chosen:
            # a key of the person's own, which the text area may use for something else
            event.stop()
            event.prevent_default()
            self.call_later(self.app.run_action, f"screen.perform('{self._keymap.chosen[event.key]}')")
        elif event.character is not None and unicodedata.category(event.character) == "Cf":
            # joiners and direction marks: text to the person, not printable to the text area, which drops them
            event.stop()
            event.prevent_default()
            start, end = self.selection
            self.replace(event.character, start, end, maintain_selection_offset=False)
        elif event.key.startswith("alt+"):
            event.prevent_default()  # the text area would type the letter; it is for the screen's bindings

    def _menu_key(self, key: str, menu: Menu) -> bool:
        """Does what a key means while the menu is open; false for those that mean the same as ever."""
        if key in ("up", "down"):
            menu.move(-1 if key == "up" else 1)
        elif key == "tab":
            self.post_message(self.MenuWanted(submit=False))
        elif key == "escape":
            menu.close()
            self.post_message(self.MenuLeft())
        elif key in self._keymap.of("send") and (menu.moved or not self._complete(menu)):
            self.post_message(self.MenuWanted(submit=True))
        else:
            return False
        return True

    def _complete(self, menu: Menu) -> bool:
        """Whether enter sends what is typed as it stands, though the menu is open."""
        command = parse_slash(self.text)
        if command is None:
            return False  # a file: enter takes it
        return command.action is not None

    def _enter(self) -> None:
        if self._continue_line():
            return
        if self._burst.pasting:
            self.new_line()
        elif self._burst.fast:  # a paste, or a line that was typed while the connection slept: what follows tells
            self._held = held = self._burst.keys
            self.set_timer(HOLD_SECONDS, lambda: self._release(held))
        else:
            self.submit()

    def _release(self, held: int) -> None:
        if self._held == held:
            self._held = 0
            self.submit()

    async def _on_paste(self, event: Paste) -> None:
        """A paste is never sent by itself; a long one is attached."""
        event.stop()
        event.prevent_default()
        text = clean(event.text)
        if len(text) > PASTE_LIMIT:
            self.attach(attachment(text))
        elif text:
            start, end = self.selection
            self.replace(text, start, end, maintain_selection_offset=False)
        self.focus()

    def action_cursor_up(self, select: bool = False) -> None:
        """Up; from the first line on to what was sent before, out of an empty prompt to the messages of the chat."""
        if select or not self.navigator.is_first_wrapped_line(self.cursor_location):
            super().action_cursor_up(select)
        elif self.message or self.sent.shown:
            self.show_older()
        else:
            self.post_message(self.Recalled())

    def action_cursor_down(self, select: bool = False) -> None:
        """Down, and from the last line back to what was being written."""
        if select or not self.navigator.is_last_wrapped_line(self.cursor_location):
            super().action_cursor_down(select)
        else:
            self.show_newer()

    def show_older(self) -> None:
        """Shows what was sent before."""
        older = self.sent.older(self.message)
        if older is not None:
            self.load_message(older)
            self.move_cursor((0, len(self.document.get_line(0))))

    def show_newer(self) -> None:
        """Shows what was sent after that, at last what was being written."""
        newer = self.sent.newer(self.message)
        if newer is not None:
            self.load_message(newer)

    # Text

    @property
    def message(self) -> str:
        """What would be sent: the text with what is attached."""
        return joined(self.text, self._attached)

    def load_message(self, message: str) -> None:
        """Shows a message, with its attachments folded, and forgets what could be undone."""
        text, attached = parted(message)
        self.load_text(text)
        self.move_cursor(self.document.end)
        self._set_attached(attached)

    def submit(self) -> None:
        """Takes the message out and posts it; undo brings its text back. Nothing happens while there is none.

        A command goes alone; what is attached waits for the message.
        """
        text = self.text
        if parse_slash(text) is None and self._attached:
            text = joined(as_message(text), self._attached)
            self._set_attached([])
        if text.strip():
            self.sent.add(text)
            self.clear()
            self.post_message(self.Submitted(text))

    def new_line(self) -> None:
        """Starts a line at the cursor, over the selection, as typing would."""
        start, end = self.selection
        self.replace("\n", start, end, maintain_selection_offset=False)

    def _continue_line(self) -> bool:
        """Replaces a backslash before the cursor by a line end; false when there is none."""
        row, column = self.cursor_location
        if column == 0 or self.document.get_line(row)[column - 1] != "\\":
            return False
        self.replace("\n", (row, column - 1), (row, column), maintain_selection_offset=False)
        return True

    def put_back(self, text: str) -> None:
        """Puts a message back in front of what was typed since; nothing typed is lost."""
        text, attached = parted(text)
        typed = self.text
        self.clear_and_insert(text + ("\n" + typed if typed.strip() else ""))
        self._set_attached([*attached, *self._attached])

    def replace_message(self, message: str) -> None:
        """Shows another message in the place of this one; undo brings the old text back."""
        text, attached = parted(message)
        self.clear_and_insert(text)
        self._set_attached(attached)

    def clear_and_insert(self, text: str) -> None:
        """Replaces all text by `text`; undo brings the old text back."""
        self.replace(text, (0, 0), self.document.end, maintain_selection_offset=False)

    def complete(self, start: int, text: str) -> None:
        """Replaces the cursor's line from column `start` to the cursor by `text`."""
        row, column = self.cursor_location
        self.replace(text, (row, start), (row, column), maintain_selection_offset=False)

    def update_suggestion(self) -> None:
        """Offers the rest of a slash command once only one is left; the right arrow takes it."""
        found = completions(self.text)
        name = f"/{found[0].slash}" if len(found) == 1 else ""
        self.suggestion = name[len(self.text) :] if name.startswith(self.text) else ""

    # Attachments

    @property
    def attached(self) -> Sequence[Attachment]:
        """What goes with the text."""
        return self._attached

    def attach(self, one: Attachment) -> None:
        """Adds an attachment; a file that is attached already takes the place of its older text."""
        kept = [other for other in self._attached if not one.name or other.name != one.name]
        self._set_attached([*kept, one])

    def detach(self, index: int) -> Attachment:
        """Removes an attachment."""
        attached = list(self._attached)
        gone = attached.pop(index)
        self._set_attached(attached)
        return gone

    def _set_attached(self, attached: list[Attachment]) -> None:
        if attached != self._attached:
            self._attached = attached
            self.post_message(self.AttachmentsChanged())
