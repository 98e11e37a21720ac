"""The switches a person can turn while the engine runs, as typed values.

A switch has a *wanted* value (what was asked for) and a *state* (what the engine does, read back from
it, with the reason). The screen shows the state; it never shows the wish as if it were the state.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Pinning(str, Enum):
    """Whether the stage pool's memory is page-locked."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class StagerProfile(str, Enum):
    """How the stager reads experts from the file: few copies from RAM, or many reads from SSD."""

    AUTO = "auto"
    RAM = "ram"
    SSD = "ssd"


class Residency(str, Enum):
    """Which experts keep their slots: the last used, those that are picked most, or those that are there."""

    LRU = "lru"
    ADAPTIVE = "adaptive"
    FROZEN = "frozen"


class Drafting(str, Enum):
    """How many tokens a window may draft: what pays, none, or always so many."""

    AUTO = "auto"
    OFF = "off"
    ONE = "1"
    TWO = "2"
    THREE = "3"
    FOUR = "4"

    @classmethod
    def _missing_(cls, value: object) -> Drafting | None:
        return cls(str(value)) if isinstance(value, int) and not isinstance(value, bool) else None  # 2 in a file

    @property
    def most(self) -> int:
        """Most drafts of one window."""
        return 0 if self is Drafting.OFF else 4 if self is Drafting.AUTO else int(self.value)


def next_value(value: Enum) -> Enum:
    """The value after `value` in its own class, going round."""
    members = list(type(value))
    return members[(members.index(value) + 1) % len(members)]


@dataclass(frozen=True, slots=True)
class Modes:
    """What was asked for."""

    pinning: Pinning = Pinning.AUTO
    stager: StagerProfile = StagerProfile.AUTO
    residency: Residency = Residency.LRU
    draft: Drafting = Drafting.AUTO


@dataclass(frozen=True, slots=True)
class SwitchState:
    """One switch as the engine reports it.

    `wanted` is the value last asked for, `actual` the value in force ("on", "off", "ram", "ssd",
    "not applicable"), `reason` one short sentence for the screen, `pending` true while the engine has
    not yet applied `wanted`.
    """

    wanted: str
    actual: str
    reason: str
    pending: bool = False

    @property
    def words(self) -> str:
        """The wish, the state and its reason: `auto: ram (auto: ram, 32 of 32 reads cached)`."""
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.wanted}: {'pending' if self.pending else self.actual}{why}"


@dataclass(frozen=True, slots=True)
class ModesState:
    """All switches as the engine reports them, and how often the stage pool was rebuilt."""

    pinning: SwitchState
    stager: SwitchState
    pool_generation: int
    residency: SwitchState | None = None
    draft: SwitchState | None = None

    @property
    def words(self) -> str:
        """All of it, in one line for the log."""
        switches = {"pinning": self.pinning, "stager": self.stager, "residency": self.residency, "drafts": self.draft}
        told = [f"{name} {state.words}" for name, state in switches.items() if state is not None]
        return "; ".join([*told, f"stage pool built {self.pool_generation} x"])
