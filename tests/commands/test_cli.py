"""What all commands share, as a person runs them: help, what is imported, how they end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from strata_tui import __version__
from strata_tui.cli import COMMANDS

from .command_line import COMMAND, Cli, needs_engine


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version").stdout == f"strata-tui {__version__}\n"
    text = cli("--help").stdout
    assert [name for name in COMMANDS if f"    {name} " not in text] == []
    for name in COMMANDS:
        if name != "bench":
            assert f"usage: strata-tui {name}" in cli(name, "--help").stdout


def test_help_imports_nothing_heavy(env: dict[str, str]) -> None:
    code = (
        "import sys\nfrom strata_tui.cli import main\n"
        "try: main(['chat', '--help'])\nexcept SystemExit: pass\n"
        "print(sorted({m.partition('.')[0] for m in sys.modules}"
        " & {'textual', 'rich', 'llama_cpp', 'numpy', 'gguf', 'sqlite3', 'tomlkit', 'jinja2', 'pynvml'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@needs_engine
def test_a_full_disk_is_one_sentence(env: dict[str, str], demo_model: Path, chats: Path) -> None:
    ask = ["ask", "Hi", "-m", str(demo_model), "--ctx", "512", "--gpu", "-1", "--max-tokens", "2"]
    for words in (ask, ["sessions"], ["export", "-o", "-"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [*COMMAND, *words], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, env=env
            )
        said = "strata-tui: The output cannot be written: No space left on device.\n"
        assert (done.returncode, done.stderr.decode()) == (2, said)


@pytest.mark.parametrize("module", ["strata_tui.cli", "strata_tui.commands.doctor", "strata_tui.sessions.store"])
def test_ctrl_c_while_modules_are_imported_ends_it_quietly(env: dict[str, str], module: str) -> None:
    code = f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may have been started with it ignored
class Press:
    def find_spec(name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Press)
from strata_tui.__main__ import main
sys.argv = ["strata-tui", "sessions"]
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
