"""Replies again, and branches, in plain lines."""

from __future__ import annotations

from ..errors import UserError
from ..sessions.rows import Role
from ..sessions.tree import Tree
from ..ui.attachments import folded
from .talk import Talk


class TurnCommands:
    """A part of PlainCommands."""

    _talk: Talk

    def do_regenerate(self, _: str) -> None:
        self._talk.again()

    def do_go_on(self, _: str) -> None:
        self._talk.go_on()

    def do_edit(self, text: str) -> None:
        if not text:
            self._talk.lines.say(f"Your last message: {folded(self._talk.last_message().text)}")
            raise UserError("Say what to send in its place: /edit TEXT.")
        self._talk.edit(text)

    def do_branch(self, which: str) -> None:
        talk, which = self._talk, which.lower()
        rows = talk.rows()
        tree = talk.store.tree(talk.session) if talk.session is not None else Tree(())
        turn = next((row for row in reversed(rows) if len(tree.siblings(row.id)) > 1), None)
        if turn is None:
            raise UserError("There is one branch only; /edit or /regen makes another.")
        siblings = [row.id for row in tree.siblings(turn.id)]
        place = siblings.index(turn.id)
        if which.isascii() and which.isdigit() and 1 <= int(which) <= len(siblings):
            place = int(which) - 1
        elif which in ("", "next"):
            place = (place + 1) % len(siblings)
        elif which in ("prev", "previous"):
            place = (place - 1) % len(siblings)
        else:
            raise UserError(f"/branch takes next, prev or a number from 1 to {len(siblings)}; not {which}.")
        talk.store.set_leaf(turn.session_id, tree.newest_leaf(siblings[place])).result()
        self._talk.lines.say(f"Branch {place + 1} of {len(siblings)}.")
        self.show_end()

    def show_end(self) -> None:
        """The last messages of the shown branch."""
        for row in self._talk.rows()[-2:]:
            who = "You" if row.role is Role.USER else row.model or "Assistant"
            self._talk.lines.say(f"{who}: {folded(row.text)}")
