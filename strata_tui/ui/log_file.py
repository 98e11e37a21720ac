"""The end of the engine's log, line by line with their levels."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from ..text import clean_line

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_TAIL_BYTES = 512 * 1024
_LINE = re.compile(r"^\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d),\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) (.*)$")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line; a line that belongs to the one before (a traceback's) has its level and no time."""

    time: str
    level: str
    text: str

    @property
    def shown(self) -> str:
        """As it is shown and copied."""
        return f"{self.time or ' ' * 8} {self.level:<7} {self.text}"


def read_log(path: Path) -> list[LogLine]:
    """The last lines. Raises UserError; may wait for the disk."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            data = file.read()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"The log {path} cannot be read: {error.strerror}.") from error
    lines = data.decode("utf-8", "replace").splitlines()
    if len(data) < size and lines:
        del lines[0]  # cut in two
    found: list[LogLine] = []
    level = "INFO"  # of what native code or Python wrote without one
    for line in lines:
        match = _LINE.match(line)
        if match:
            level = "ERROR" if match[2] == "CRITICAL" else match[2]
            found.append(LogLine(match[1], level, clean_line(match[3])))
        elif line.strip():
            indent = " " * (len(line) - len(line.lstrip()))
            found.append(LogLine("", level, indent + clean_line(line)))
    return found


def at_least(lines: list[LogLine], level: str) -> list[LogLine]:
    """Those of a level or a graver one."""
    least = LEVELS.index(level)
    return [line for line in lines if LEVELS.index(line.level) >= least]
