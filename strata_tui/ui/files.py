"""The files below the working folder, found by a few letters of their path."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from textual.fuzzy import FuzzySearch

MOST_FILES = 20_000
_STALE_SECONDS = 10.0
_GIT_SECONDS = 5.0
_MOST_SCORED = 400
_SKIPPED = {"node_modules", "__pycache__", "site-packages", "target", "build", "dist", "venv"}


class FileIndex:
    """Paths relative to `folder`, hidden and generated ones left out. `refresh` and `find` may take a while."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cut = False  # there are more files than are listed
        self._paths: list[str] = []
        self._listed = float("-inf")
        self._fuzzy = FuzzySearch()

    def refresh(self) -> None:
        """Lists the files again where the list is older than some seconds."""
        if time.monotonic() - self._listed < _STALE_SECONDS:
            return
        found = _git_files(self.folder)
        if found is None:
            found = _walk(self.folder)
        self.cut = len(found) > MOST_FILES
        self._paths = sorted(found[:MOST_FILES], key=lambda path: (path.count("/"), path))
        self._listed = time.monotonic()

    def find(self, letters: str, most: int) -> list[str]:
        """The paths that contain these letters in this order, the best first; all of them for no letters."""
        if not letters:
            return self._paths[:most]
        pattern = re.compile(".*".join(re.escape(letter) for letter in letters), re.IGNORECASE)
        hits = [path for path in self._paths if pattern.search(path)]
        whole = letters.lower()
        # few are scored: those that hold the letters in one piece, in their name or at all, come first
        hits.sort(key=lambda path: (whole not in path.rpartition("/")[2].lower(), whole not in path.lower(), len(path)))
        scored = [
            (self._fuzzy.match(letters, path)[0], -number, path) for number, path in enumerate(hits[:_MOST_SCORED])
        ]
        ranked = sorted(scored, key=lambda item: (path_rank(letters, item[2]), item[0], item[1]), reverse=True)
        return [path for _, _, path in ranked[:most]]


def path_rank(letters: str, path: str) -> int:
    """How plainly a path is meant: the path itself, its name, its name's start, a part of its name, none of these."""
    whole, name = letters.lower(), path.rpartition("/")[2].lower()
    tests = (path.lower() == whole, name == whole, name.startswith(whole), whole in name)
    return next((len(tests) - number for number, holds in enumerate(tests) if holds), 0)


def _git_files(folder: Path) -> list[str] | None:
    """What git knows and what it does not ignore; None where there is no repository or no git."""
    git = shutil.which("git")
    if git is None or not any((place / ".git").exists() for place in (folder, *folder.parents)):
        return None
    command = [git, "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if run.returncode:
        return None
    paths = dict.fromkeys(os.fsdecode(path) for path in run.stdout.split(b"\0") if path)
    return [path for path in paths if (folder / path).is_file()]


def _walk(folder: Path) -> list[str]:
    found: list[str] = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        place = os.path.relpath(root, folder)
        found.extend(os.path.join(place, name) if place != "." else name for name in names if name[:1] != ".")
        if len(found) > MOST_FILES:
            break
    return found
