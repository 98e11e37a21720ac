"""Folders, a command line and a store of its own for each test."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from strata_tui.sessions.rows import Status
from strata_tui.sessions.store import Store

from .command_line import COMMAND, Cli


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Folders of its own for each test; nothing of the person who runs the tests is read."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith("STRATA_TUI_")}
    places = {n: str(tmp_path / n.lower()) for n in ("DATA", "CACHE", "LOGS")}
    own = {f"STRATA_TUI_{n}": v for n, v in places.items()} | {"STRATA_TUI_CONFIG": str(tmp_path / "settings.toml")}
    return kept | own | {"TERM": "xterm-256color", "COLUMNS": "120", "HF_HOME": str(tmp_path), "LLAMA_CACHE": "/none"}


@pytest.fixture
def cli(env: dict[str, str], tmp_path: Path) -> Cli:
    def run(*words: str, stdin: str | bytes = "", **extra: str) -> subprocess.CompletedProcess[str]:
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        done = subprocess.run([*COMMAND, *words], input=data, capture_output=True, env=env | extra, cwd=tmp_path)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def chats(env: dict[str, str]) -> Path:
    """A store with two chats; the second, newer one has two replies to one question."""
    path = Path(env["STRATA_TUI_DATA"]) / "chats.sqlite3"
    with Store(path) as store:
        store.add_user_message(store.create_session(title="old"), "first question")
        new = store.create_session(model="tiny")
        question = store.add_user_message(new, "What is a slot?")
        for text in ("one answer", "another answer"):
            store.finish_reply(store.begin_reply(new, question), Status.DONE, text, "let me think")
    return path
