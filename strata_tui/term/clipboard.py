"""Copying text to where the person can paste it, and saying no more about it than is known.

On a remote machine a clipboard program would fill a clipboard that nobody sits at, so the terminal is asked (OSC 52).
It never answers: whether it obeyed is not known.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from ..atomic import write_atomic
from ..config import cache_dir
from ..errors import UserError
from ..text import clean

MAX_OSC_BYTES: Final = 74_900
"""Of UTF-8. Terminals read up to 100,000 characters of an OSC 52 sequence, where the text is in base64."""
_MAX_SCREEN_STRING: Final = 250  # GNU screen drops longer ones
_PROGRAM_S: Final = 3.0


class Route(Enum):
    TOOL = "tool"  # a clipboard program of the desktop
    TMUX = "tmux"  # tmux's buffer, from where it goes on to the terminal
    OSC = "osc"  # the terminal was asked
    FILE = "file"


@dataclass(frozen=True, slots=True)
class CopyResult:
    route: Route
    certain: bool
    """Whether the text is known to be where it can be pasted from."""
    message: str
    """What was done, for the person."""


def copy(text: str, write: Callable[[str], object]) -> CopyResult:
    """Copies `text`, without control characters.

    On a desktop a clipboard program takes it; else, and over SSH, tmux or the terminal itself, through `write`, which
    has to send a control sequence to the terminal as it is (the driver's `write` in Textual). What is too long for that
    goes to a file. May wait some seconds for a program: call it from a thread. Raises UserError if the file cannot be
    written.
    """
    text = clean(text)
    data = text.encode()
    remote = os.environ.get("SSH_TTY") or os.environ.get("SSH_CONNECTION")
    for name, command in () if remote else _desktop_programs():
        if _fed(command, data):
            return CopyResult(Route.TOOL, True, f"copied ({name})")
    fits = fits_terminal(text)
    # tmux passes OSC 52 on only if it is set up to; its own command needs no setup. -w: to the terminal as well.
    tmux = shutil.which("tmux") if os.environ.get("TMUX") else None
    if tmux and fits and _fed([tmux, "load-buffer", "-w", "-"], data):
        return CopyResult(Route.TMUX, False, "in tmux's buffer, and sent to the terminal (OSC 52)")
    if fits:
        write(osc52(text))
        return CopyResult(Route.OSC, False, "sent to the terminal (OSC 52)")
    return CopyResult(Route.FILE, True, f"too long for the terminal's clipboard: written to {_filed(text)}")


def fits_terminal(text: str) -> bool:
    """Whether terminals take this much through OSC 52."""
    return len(text.encode()) <= MAX_OSC_BYTES


def osc52(text: str) -> str:
    """The sequence that asks the terminal to take `text` into its clipboard, wrapped for tmux or GNU screen."""
    sequence = f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07"
    if os.environ.get("TMUX"):
        return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if os.environ.get("STY"):
        size = _MAX_SCREEN_STRING - 2
        pieces = (sequence[start : start + size] for start in range(0, len(sequence), size))
        return "".join(f"\x1bP{piece}\x1b\\" for piece in pieces)
    return sequence


def _desktop_programs() -> Iterator[tuple[str, list[str]]]:
    """Clipboard programs that are installed and have a desktop to talk to."""
    wanted: list[list[str]] = []
    if sys.platform == "darwin":
        wanted.append(["pbcopy"])
    if os.environ.get("WAYLAND_DISPLAY"):
        wanted.append(["wl-copy"])
    if os.environ.get("DISPLAY"):
        wanted += [["xclip", "-selection", "clipboard"], ["xsel", "--clipboard", "--input"]]
    for name, *flags in wanted:
        if path := shutil.which(name):
            yield name, [path, *flags]


def _fed(command: list[str], data: bytes) -> bool:
    """Whether `command` took `data`. Its outputs are closed: xclip and wl-copy stay behind to serve the clipboard."""
    try:
        done = subprocess.run(
            command,
            input=data,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PROGRAM_S,
            start_new_session=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _filed(text: str) -> Path:
    path = cache_dir() / "copied.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error
    return path
