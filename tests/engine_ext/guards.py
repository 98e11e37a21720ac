"""What a guard is: a few characters of a pure part without which a named check fails."""

from __future__ import annotations

from dataclasses import dataclass

SECONDS = 20  # until a mutant counts as hanging, unless a hang is what is expected of it


@dataclass(frozen=True)
class Guard:
    """In `part`.c (whole, or what the program has of it as an excerpt), `old` becomes `new` (the `nth` place where
    it stands); then `program` fails with one of `checks`."""

    what: str
    part: str
    old: str
    new: str
    program: str
    checks: tuple[str, ...]
    nth: int = 0
    seconds: int = SECONDS
