"""`strata-tui import`."""

from __future__ import annotations

from pathlib import Path

from .command_line import Cli, refused


def test_import_of_an_export(cli: Cli, chats: Path, tmp_path: Path) -> None:
    for name in ("chat.json", "other.json"):
        assert cli("export", "2", "-o", name).returncode == 0
    done = cli("import", "chat.json", "other.json", STRATA_TUI_DATA=str(tmp_path / "elsewhere"))
    assert done.stdout.splitlines() == [
        "chat.json (strata-tui): 1 chat with 3 messages in 2 branches taken in.",
        "other.json (strata-tui): 0 chats with 0 messages taken in, 1 here already.",
    ]
    again = cli("export", "--format", "json", "-o", "-", STRATA_TUI_DATA=str(tmp_path / "elsewhere"))
    assert again.stdout == (tmp_path / "chat.json").read_text()
    (tmp_path / "broken.json").write_text("{")
    refused(
        cli("import", "chat.json", "broken.json", STRATA_TUI_DATA=str(tmp_path / "third")), "broken.json is no JSON"
    )
    assert cli("sessions", STRATA_TUI_DATA=str(tmp_path / "third")).stdout == ""  # nothing was taken in
