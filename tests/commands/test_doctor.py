"""`strata-tui doctor`."""

from __future__ import annotations

import re
from pathlib import Path

from strata_tui import __version__

from .command_line import Cli, needs_engine


def test_doctor_goes_on_after_a_fault(cli: Cli, env: dict[str, str]) -> None:
    Path(env["STRATA_TUI_CONFIG"]).write_text("[engine")
    done = cli("doctor", STRATA_TUI_DATA="/proc/none")
    assert done.returncode == 1
    lines = {line[:18].strip(): line[19:] for line in done.stdout.splitlines()}
    assert lines["strata-tui"] == __version__
    assert lines["data folder"].startswith("FAULT: /proc/none cannot be written")
    assert lines["settings"].startswith("FAULT: The settings file")
    assert lines["cache folder"].endswith("(not made yet)")
    assert {"python", "sqlite", "textual", "chats", "terminal", "ram", "cores"} <= set(lines)
    Path(env["STRATA_TUI_DATA"]).write_text("a file")
    assert f"FAULT: {env['STRATA_TUI_DATA']} cannot be written: {env['STRATA_TUI_DATA']} is not a folder" in (
        cli("doctor").stdout
    )


@needs_engine
def test_doctor_shows_no_free_memory_of_the_cpu(cli: Cli) -> None:
    [line] = [line for line in cli("doctor").stdout.splitlines() if line.startswith("device CPU")]
    assert re.search(r"\(CPU\), \d+\.\d GiB$", line)
