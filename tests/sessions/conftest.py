from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strata_tui.sessions.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as opened:
        yield opened


class Writer:
    """A second, real program on the same database; see writer_process.py."""

    def __init__(self, path: Path) -> None:
        script = Path(__file__).with_name("writer_process.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._answer() == "open"

    def tell(self, words: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        return self._answer()

    def kill(self) -> None:
        """SIGKILL: nothing of the program runs any more."""
        self.process.kill()
        self.process.wait()

    def leave(self) -> None:
        """Ends it in the ordinary way."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait() == 0

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")


@pytest.fixture
def start_writer(path: Path) -> Iterator[Callable[[], Writer]]:
    started: list[Writer] = []

    def start() -> Writer:
        started.append(Writer(path))
        return started[-1]

    yield start
    for writer in started:
        writer.kill()
        for stream in (writer.process.stdin, writer.process.stdout):
            if stream is not None:
                stream.close()
