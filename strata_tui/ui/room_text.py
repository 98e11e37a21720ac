"""What can be done when a chat does not fit its context, in words; for the screen and for plain lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine.counters import MemoryReport
from ..room import Room, spans
from ..text import clean_line
from . import format as f

if TYPE_CHECKING:  # at run time when there is one: it takes numpy
    from ..catalog.larger import Larger

LARGER, FORK, LEAVE_OUT = "room_larger", "room_fork", "room_leave"  # ids of the table of actions
_BEGINNING = 40  # characters of a message that say which it is


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to make room. `problem`: why it cannot be taken, one sentence; nothing where it can."""

    id: str
    head: str
    about: str = ""
    problem: str = ""


def situation_text(room: Room) -> str:
    """What the chat takes, and what there is."""
    what = "This chat and your message take" if room.asked.pending else "This chat takes"
    text = f"{what} {f.count(room.tokens)} of the context's {f.count(room.context)} tokens"
    return f"{text}: there is room." if room.fits else f"{text}; a reply should find {f.count(room.reply)} free."


def choices(room: Room, larger: Larger, memory: MemoryReport) -> list[Choice]:
    """The ways to make room, always the same three. `memory`: as it is now."""
    return [_larger(room, larger, memory), _fork(room), _leave_out(room)]


def _larger(room: Room, larger: Larger, memory: MemoryReport) -> Choice:
    plan = larger.plan
    if plan is None:
        return Choice(LARGER, "A larger context", problem=_sentence(larger.why))
    about = f"Opens the model again: KV cache {f.size(plan.kv)} (now {f.size(memory.kv)})"
    if plan.n_experts:
        about += (
            f", {f.count(plan.slots)} of {f.count(plan.n_experts)} experts in slots (now {f.count(memory.slots_total)})"
        )
    if larger.context < room.tokens + room.reply:
        about += "; messages must go as well"
    return Choice(LARGER, f"A larger context: {f.count(larger.context)} tokens", f"{about}.")


def _fork(room: Room) -> Choice:
    path, first = room.asked.path, room.first
    head = "A new chat with what fits"
    if not path:
        return Choice(FORK, head, problem="There are no earlier messages.")
    if first is None:
        return Choice(FORK, head, problem=_too_much(room))
    if first == len(path):
        return Choice(FORK, head, problem="Nothing of this chat fits beside your message; /new begins another.")
    if first == 0:
        return Choice(FORK, head, problem="All of it fits.")
    which = f"A new chat with messages {spans(range(first, len(path)))} of {len(path)}"
    return Choice(FORK, which, f"From “{beginning(path[first].text)}” on, {f.count(room.fitting)} tokens.")


def _leave_out(room: Room) -> Choice:
    head = "Leave messages out, and choose which"
    if not room.asked.fixed:
        return Choice(LEAVE_OUT, head, problem="There are no earlier messages.")
    if room.first is None:
        return Choice(LEAVE_OUT, head, problem=_too_much(room))
    out = room.oldest
    if not out:
        return Choice(LEAVE_OUT, head, "Nothing has to go.")
    return Choice(LEAVE_OUT, head, f"The oldest that must go are {spans(sorted(out))}. They stay here, not sent.")


def _too_much(room: Room) -> str:
    what = "Your message alone takes" if room.asked.pending else "The last message and its reply take"
    return f"{what} more than the context holds."


def beginning(text: str) -> str:
    """How a message begins, on one line."""
    line = clean_line(text)
    return line if len(line) <= _BEGINNING else line[: _BEGINNING - 1] + "…"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."
