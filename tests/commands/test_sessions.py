"""`strata-tui sessions`: the list, the search and the bin."""

from __future__ import annotations

import json
from pathlib import Path

from strata_tui.sessions.store import Store

from .command_line import Cli


def test_sessions(cli: Cli, chats: Path) -> None:
    lines = cli("sessions").stdout.splitlines()
    assert [line.split(None, 1)[0] for line in lines] == ["2", "1"]
    assert "3 messages  What is a slot?" in lines[0]
    records = json.loads(cli("sessions", "--json").stdout)
    assert [(r["id"], r["title"], r["messages"]) for r in records] == [(2, "What is a slot?", 3), (1, "old", 1)]


def test_searching(cli: Cli, chats: Path) -> None:
    lines = cli("sessions", "--search", "another", "answ").stdout.splitlines()
    assert lines[0].split()[0] == "2" and lines[0].endswith("assistant  What is a slot?")
    assert lines[1].strip() == "another answer"
    records = json.loads(cli("sessions", "--search", "slot", "--json").stdout)
    assert [(r["message"], r["role"], r["matched"]) for r in records] == [(None, None, ["slot"]), (2, "user", ["slot"])]
    assert json.loads(cli("sessions", "--search", "slot", "--limit", "1", "--json").stdout) == records[:1]
    nothing = cli("sessions", "--search", "think")
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", "Nothing was found.\n")
    assert json.loads(cli("sessions", "--search", "think", "--json").stdout) == []


def test_the_bin(cli: Cli, chats: Path) -> None:
    with Store(chats) as store:
        store.rename(1, "old \x9b2J one")
        store.delete(1)
    line = cli("sessions", "--deleted").stdout
    assert line.split()[0] == "1" and "kept for 29 more days  old 2J one" in line
    assert len(cli("sessions").stdout.splitlines()) == 1
    assert cli("sessions", "--empty-bin").stdout == "1 deleted chat is gone for good.\n"
    assert json.loads(cli("sessions", "--empty-bin", "--json").stdout) == {"removed": 0}
    assert "No deleted chats" in cli("sessions", "--deleted").stderr


def test_no_sessions(cli: Cli) -> None:
    done = cli("sessions")
    assert (done.returncode, done.stdout) == (0, "")
    assert "No chats" in done.stderr
    assert json.loads(cli("sessions", "--json").stdout) == []
