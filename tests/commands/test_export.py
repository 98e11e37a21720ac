"""`strata-tui export`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from strata_tui.sessions.store import Store

from .command_line import Cli, refused


def test_export(cli: Cli, chats: Path, tmp_path: Path) -> None:
    text = cli("export", "last", "-o", "-").stdout
    assert "## Assistant\n\nanother answer\n" in text
    assert "one answer" not in text
    assert "let me think" not in text
    assert "> let me think" in cli("export", "2", "--thinking", "-o", "-").stdout
    assert "first question" in cli("export", "1", "-o", "-").stdout
    assert len(json.loads(cli("export", "--format", "json", "-o", "-").stdout)["messages"]) == 3
    assert len(json.loads(cli("export", "--format", "json", "--branch", "-o", "-").stdout)["messages"]) == 2
    tree = cli("export", "--tree", "-o", "-").stdout
    assert "one answer" in tree and "another answer" in tree and "# Branch 2, from message 1" in tree
    page = cli("export", "--format", "html", "--tree", "-o", "-").stdout
    assert page.startswith("<!DOCTYPE html>") and "one answer" in page
    assert cli("export", "-o", "x.html").stdout == "x.html\n"
    assert (tmp_path / "x.html").read_text().startswith("<!DOCTYPE html>")
    names = [cli("export", *words).stdout.strip() for words in ([], [], ["-o", "x.json"], ["-o", "data"])]
    assert names == [
        "chat-2-what-is-a-slot.md",
        "chat-2-what-is-a-slot-2.md",
        "x.json",
        "data/chat-2-what-is-a-slot.md",
    ]
    assert (tmp_path / names[0]).read_text() == (tmp_path / names[1]).read_text() == text
    assert json.loads((tmp_path / "x.json").read_text())["session"]["title"] == "What is a slot?"
    refused(cli("export", "-o", "no/such/folder.md"), "no/such/folder.md")


def test_the_last_chat_is_the_last_one_with_messages(cli: Cli, env: dict[str, str], chats: Path) -> None:
    with Store(chats) as store:
        store.set_draft(store.create_session(), "not sent yet").result()
    first, second, _ = cli("sessions").stdout.splitlines()
    assert first.split()[0] == "3" and first.endswith("   0 messages  (only a draft)")
    assert second.split()[0] == "2" and cli("export", "last").stdout == "chat-2-what-is-a-slot.md\n"
    with Store(chats) as store:
        for chat in (1, 2):
            store.delete(chat).result()
    refused(cli("export"), "no chat to export", "none has messages")


@pytest.mark.timeout(60)
def test_an_export_is_written_to_no_device(cli: Cli, chats: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/full", "/dev/stdout", str(tmp_path / "pipe")):
        refused(cli("export", "-o", path), f"cannot be written to {path}", "on a disk")
        assert not Path(f"{path}-2").exists()
