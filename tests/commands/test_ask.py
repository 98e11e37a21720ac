"""`strata-tui ask`, on a real model."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import pytest

from .command_line import COMMAND, Cli, needs_engine, refused


@needs_engine
def test_ask(cli: Cli, env: dict[str, str], demo_model: Path) -> None:
    flags = ["-m", str(demo_model), "--ctx", "512", "--gpu", "-1", "--temperature", "0", "--max-tokens", "8"]
    done = cli("ask", "Continue:", *flags, "--stats", stdin="one two three four\n")
    assert done.returncode == 0
    assert done.stdout.strip()
    assert done.stdout.endswith("\n")
    assert "\x1b" not in done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert "strata-tui: the reply was cut after 8 tokens: the reply has reached its limit of 8 tokens." in lines
    assert lines[-5].startswith("reply     8 tokens")
    assert lines[-1].endswith(" of 512 tokens")
    [profile] = (Path(env["STRATA_TUI_CACHE"]) / "profiles").iterdir()
    kept = profile.read_bytes()
    again = cli("ask", "Continue:", *flags, "--no-profile", stdin="one two three four\n")
    assert (again.stdout, profile.read_bytes()) == (done.stdout, kept)
    joined = cli("ask", "Continue:\n\none two three four", *flags)  # piped text is added to the prompt's end
    assert joined.stdout == done.stdout
    assert profile.read_bytes() != kept
    with_system = cli(
        "ask", "Continue:\n\none two three four", "-s", "You only ever speak of boats.", "--stats", *flags
    )
    prompt = [next(line for line in d.stderr.splitlines() if line.startswith("prompt")) for d in (done, with_system)]
    assert prompt[0].split()[1] != prompt[1].split()[1]  # the system prompt was read: another number of tokens


@needs_engine
def test_ask_with_too_long_a_prompt(cli: Cli, demo_model: Path) -> None:
    refused(cli("ask", "word " * 2000, "-m", str(demo_model), "--ctx", "256", "--gpu", "-1"), "256")


@needs_engine
def test_ask_says_that_the_context_is_full(cli: Cli, demo_model: Path) -> None:
    flags = ["-m", str(demo_model), "--ctx", "256", "--gpu", "-1", "--temperature", "0", "--no-profile"]
    done = cli("ask", "Repeat for ever:" + " boat" * 218, *flags)
    assert done.returncode == 0
    assert re.search(r"the reply was cut after \d+ tokens: the context of 256 tokens is full\.\n$", done.stderr)


@needs_engine
def test_a_log_that_cannot_be_written_is_one_sentence_and_the_reply_goes_on(cli: Cli, demo_model: Path) -> None:
    words = ["-m", str(demo_model), "--ctx", "512", "--gpu", "-1", "--max-tokens", "2", "--log", "/dev/full"]
    done = cli("ask", "Hi", *words)
    assert done.returncode == 0 and done.stdout.strip()
    said = [line for line in done.stderr.splitlines() if not line.startswith("strata-tui: the reply was cut")]
    why = "The log /dev/full cannot be written (No space left on device), and its lines are lost"
    assert len(said) == 1 and said[0].startswith(f"strata-tui: {why}"), done.stderr


@needs_engine
@pytest.mark.parametrize("how", ["interrupt", "close"])
def test_ask_stopped_by_ctrl_c_or_by_its_reader(env: dict[str, str], demo_model: Path, how: str) -> None:
    words = ["ask", "Tell a very long story.", "-m", str(demo_model), "--gpu", "-1", "--temperature", "0"]
    with subprocess.Popen(
        [*COMMAND, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(4)  # the reply has begun
        if how == "interrupt":
            process.send_signal(signal.SIGINT)
            process.stdout.read()
        else:
            process.stdout.close()
        said = process.stderr.read()
        assert process.wait() == (130 if how == "interrupt" else 141)
        assert b"Error" not in said, said
        assert b"Exception" not in said, said


@needs_engine
def test_ask_on_a_terminal(env: dict[str, str], demo_model: Path) -> None:
    flags = ["-m", str(demo_model), "--ctx", "512", "--gpu", "-1", "--max-tokens", "2"]
    master, slave = pty.openpty()
    process = subprocess.Popen([*COMMAND, "ask", "Hi", *flags], stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    shown = b""
    try:
        while piece := os.read(master, 4096):
            shown += piece
    except OSError:  # the terminal's other end is closed
        pass
    os.close(master)
    assert process.wait() == 0
    # the status line is wiped before the reply is written
    status, _, reply = shown.decode().rpartition("\r\x1b[K")
    assert "reading prompt" in status
    assert reply.strip()
    assert "\x1b" not in reply
