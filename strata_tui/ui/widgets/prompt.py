"""The prompt: several lines of text, in which enter sends."""

from __future__ import annotations

import unicodedata
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Key
from textual.message import Message
from textual.widgets import TextArea

from ..actions import BY_ID, Where, bindings, completions

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
    binding runs before characters that were typed earlier and are still waiting.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*_kept(TextArea.BINDINGS), *bindings(Where.PROMPT)]

    class Submitted(Message):
        """Enter was pressed; the text has been taken out of the prompt."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, id: str | None = None) -> None:
        super().__init__(
            id=id,
            soft_wrap=True,
            tab_behavior="focus",
            highlight_cursor_line=False,
            placeholder="Message, or / for commands",
        )

    def on_mount(self) -> None:
        self.border_title = "Prompt"

    async def on_key(self, event: Key) -> None:
        if event.key in BY_ID["send"].keys:
            event.stop()
            event.prevent_default()
            if not self._continue_line():
                self.submit()
        elif event.key in BY_ID["new_line"].keys:
            event.stop()
            event.prevent_default()
            self.new_line()
        elif event.character is not None and unicodedata.category(event.character) == "Cf":
            # joiners and direction marks: text to the person, not printable to the text area, which drops them
            event.stop()
            event.prevent_default()
            start, end = self.selection
            self.replace(event.character, start, end, maintain_selection_offset=False)
        elif event.key.startswith("alt+"):
            event.prevent_default()  # the text area would type the letter; it is for the screen's bindings

    def submit(self) -> None:
        """Takes the text out and posts it; undo brings it back. Nothing happens while there is none."""
        text = self.text
        if text.strip():
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
        """Puts a text back in front of what was typed since; nothing typed is lost."""
        typed = self.text
        self.clear_and_insert(text + ("\n" + typed if typed.strip() else ""))

    def clear_and_insert(self, text: str) -> None:
        """Replaces everything by `text`; undo brings the old text back."""
        self.replace(text, (0, 0), self.document.end, maintain_selection_offset=False)

    def update_suggestion(self) -> None:
        """Offers the rest of a slash command once only one is left; the right arrow takes it."""
        found = completions(self.text)
        name = f"/{found[0].slash}" if len(found) == 1 else ""
        self.suggestion = name[len(self.text) :] if name.startswith(self.text) else ""
