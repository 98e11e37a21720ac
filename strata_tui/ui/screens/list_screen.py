"""A screen over the chat with one list, in which j and k move, too."""

from __future__ import annotations

from textual.widgets import OptionList

from .action_screen import ActionScreen, R


class ListScreen(ActionScreen[R]):
    """The list's own keys (enter, home, end and so on) are the toolkit's."""

    def do_list_up(self) -> None:
        """The line above."""
        self.query_one(OptionList).action_cursor_up()

    def do_list_down(self) -> None:
        """The line below."""
        self.query_one(OptionList).action_cursor_down()

    def do_page_close(self) -> None:
        """Closes without a choice."""
        self.dismiss(None)
