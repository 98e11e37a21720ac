"""Editing text in the person's own editor."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from ..errors import UserError
from .signals import handling, nothing

_FALLBACKS: Final = ("nano", "vim", "vi")


def editor_command() -> list[str]:
    """The command of $VISUAL, else $EDITOR, else an editor that is installed. Raises UserError if there is none."""
    for name in ("VISUAL", "EDITOR"):
        value = os.environ.get(name, "").strip()
        if not value:
            continue
        try:
            command = shlex.split(value)
        except ValueError as error:
            raise UserError(f"${name} is not a command: {value} ({error}).") from error
        if shutil.which(command[0]) is None:
            raise UserError(f"${name} names an editor that is not installed: {command[0]}.")
        return command
    for fallback in _FALLBACKS:
        if found := shutil.which(fallback):
            return [found]
    raise UserError("There is no editor: set $VISUAL or $EDITOR to one.")


def edit(text: str, *, suffix: str = ".md") -> str | None:
    """Opens `text` in the editor and waits. Returns the new text, or None if it is as it was.

    The editor gets the terminal: Textual has to be suspended around the call, which belongs to the main thread. A line
    end that the editor puts after the last line is taken off again. Raises UserError if there is no editor, or if it
    reports a failure (as Vim does on `:cq`).
    """
    command = editor_command()
    with tempfile.TemporaryDirectory(prefix="strata-tui-") as folder:
        path = Path(folder, f"prompt{suffix}")
        path.write_text(text, encoding="utf-8", newline="")
        # Ctrl+C is the editor's to answer. Descriptor 2 may lead to the log (stderr_guard.py): the editor gets the
        # terminal.
        with handling({signal.SIGINT: nothing}):
            code = subprocess.run([*command, str(path)], stderr=sys.__stderr__, check=False).returncode
        if code:
            raise UserError(f"{command[0]} failed (exit code {code}); the text stays as it was.")
        try:
            edited = path.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{command[0]} left no text that can be read ({error}); it stays as it was.") from error
    if edited.endswith("\n") and not text.endswith("\n"):
        edited = edited.removesuffix("\n").removesuffix("\r")
    return None if edited == text else edited
