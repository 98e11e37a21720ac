"""The first line of a message: who, which of several branches, when."""

from __future__ import annotations

from datetime import datetime

from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widget import Widget

from ...sessions.rows import Role
from ...text import clean_line
from ..chat import Turn

_GAP = "  "
UNSENT = "not sent"  # the person has left it out of what the model gets


class MessageHead(Widget):
    """One widget, drawn for its width. A click on `‹ 2 of 3 ›` goes to the branch before or after."""

    class BranchClicked(Message):
        """`step`: -1 or 1."""

        def __init__(self, turn: Turn, step: int) -> None:
            super().__init__()
            self.turn = turn
            self.step = step

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._turn = turn

    def render(self) -> Content:
        return head_text(self._turn, self.size.width)

    def on_click(self, event: Click) -> None:
        branch = branch_text(self._turn)
        start = self.size.width - len(_right(self._turn))
        if 0 <= event.x - start < len(branch):
            self.post_message(self.BranchClicked(self._turn, -1 if event.x - start < len(branch) / 2 else 1))


def head_text(turn: Turn, width: int) -> Content:
    """The role's name on the left, and whether it is not sent; the branch and the time on the right."""
    color = "$primary" if turn.role is Role.USER else "$secondary"
    right = _right(turn)
    branch = branch_text(turn)
    unsent = "" if turn.in_view else _GAP + UNSENT
    name = Content(role_name(turn)).truncate(max(1, width - len(right) - len(unsent) - 1), ellipsis=True)
    gap = max(1, width - name.cell_length - len(unsent) - len(right))
    return Content.assemble(
        name.stylize(f"bold {color}"),
        (unsent, "$warning"),
        " " * gap,
        (branch, "$accent"),
        (right[len(branch) :], "$secondary"),
    )


def _right(turn: Turn) -> str:
    branch = branch_text(turn)
    return branch + (_GAP if branch else "") + clock(turn.created)


def role_name(turn: Turn) -> str:
    """`You`, or the model's name."""
    return "You" if turn.role is Role.USER else clean_line(turn.model) or "Assistant"


def clock(then: float) -> str:
    """Hours and minutes, local time; with the day where that is not today, and the year where that is another."""
    when, now = datetime.fromtimestamp(then), datetime.now()
    day = "" if when.date() == now.date() else "%d %b " if when.year == now.year else "%d %b %Y "
    return when.strftime(f"{day}%H:%M")


def branch_text(turn: Turn) -> str:
    """`‹ 2 of 3 ›`, or nothing where there are no other branches."""
    siblings = turn.siblings
    return f"‹ {siblings.index(turn) + 1} of {len(siblings)} ›" if len(siblings) > 1 else ""
