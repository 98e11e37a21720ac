"""What cannot be used is refused: exit code 2 and one sentence on stderr."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest

from .command_line import Cli, refused


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["foo"], ["no command 'foo'", "chat, ask, sessions"]),
        (["ask", "hi", "--slotz", "3"], ["--slotz"]),
        (["ask", "hi", "-m"], ["-m/--model", "strata-tui ask --help"]),
        (["ask"], ["There is no question"]),
        (["ask", "  "], ["There is no question"]),
        (["ask", "hi", "-m", "/no/such.gguf"], ["no model file /no/such.gguf"]),
        (["ask", "hi", "-m", "/proc"], ["/proc is a folder"]),
        (["ask", "hi", "-m", __file__], [f"{__file__} is not a GGUF file"]),
        (["ask", "hi", "-m", "/dev/zero"], ["/dev/zero is not a regular file"]),
        (["ask", "hi", "--slots", "many"], ["--slots is 'many'", "a whole number from 1"]),
        (["ask", "hi", "--pinning", "perhaps"], ["--pinning is 'perhaps'", "auto, on, off"]),
        (["ask", "hi", "--residency", "hot"], ["--residency is 'hot'", "lru, adaptive, frozen"]),
        (["ask", "hi", "--profile", "maybe"], ["--profile is 'maybe'; allowed: on or off."]),
        (["ask", "hi", "--verify-cache", "-1"], ["--verify-cache is '-1'", "a whole number from 0 to"]),
        (["ask", "hi", "--temperature", "-1"], ["--temperature is '-1'", "from 0 to 10"]),
        (["ask", "hi", "--log", "/proc/x/log"], ["log file /proc/x/log cannot be written"]),
        (["chat"], ["needs a terminal"]),
        ([], ["needs a terminal"]),
        (["--ctx", "1"], ["--ctx is '1'", "from 256"]),
        (["--resume", "first"], ["'first' is not a chat's number"]),
        (["export"], ["no chat to export"]),
        (["export", "12"], ["no chat 12"]),
        (["export", "-1"], ["-1"]),
        (["export", "9" * 30], ["is not a chat's number"]),
        (["export", "--format", "pdf"], ["'pdf'"]),
        (["export", "--tree", "--branch"], ["not allowed with"]),
        (["sessions", "--search"], ["--search"]),
        (["sessions", "--search", "x", "--deleted"], ["not allowed with"]),
        (["sessions", "--search", "w " * 33], ["32 words at most"]),
        (["sessions", "--limit", "0"], ["'0' is not a whole number"]),
        (["import"], ["FILE"]),
        (["import", "missing.json"], ["missing.json cannot be read"]),
        (["models", "/no/such/folder"], ["no folder /no/such/folder"]),
        (["bench", "decode", "m.gguf", "--rounds", "0"], ["--rounds", "'0' is not a whole number of at least 1"]),
        (["bench", "decode", "m.gguf", "--tokens", "0"], ["--tokens", "'0' is not a whole number of at least 1"]),
        (["bench", "decode", "m.gguf", "--prompt", "x"], ["--prompt", "'x' is not a whole number of at least 1"]),
        (["bench", "decode", "m.gguf", "--warm", "-1"], ["--warm", "'-1' is not a whole number of at least 0"]),
        (["bench", "decode", "m.gguf", "--slots-fraction", "0"], ["--slots-fraction", "'0' is not a share above 0"]),
        (["bench", "decode", "m.gguf", "--slots-fraction", "0.5", "7"], ["'7' is not a share above 0 and at most 1"]),
        (["bench", "decode", "m.gguf", "--mirror-gib", "nan"], ["--mirror-gib", "'nan' is not a number of at least 0"]),
        (["bench", "decode", "m.gguf", "--limit-link", "0"], ["--limit-link", "'0' is not a number above 0"]),
        (["bench", "identity", "m.gguf", "--slots-fraction", "1.01"], ["'1.01' is not a share"]),
        (["bench", "identity", "m.gguf", "--prompt", "0"], ["--prompt", "'0' is not a whole number of at least 1"]),
        (["bench", "identity", "m.gguf", "--tokens", "0"], ["--tokens", "'0' is not a whole number of at least 1"]),
        (["bench", "stage", "--copies", "0"], ["--copies", "'0' is not a whole number of at least 1"]),
        (["bench", "stage", "--ring", "0"], ["--ring", "'0' is not a whole number of at least 1"]),
        (["bench", "stage", "--rounds", "0"], ["--rounds", "'0' is not a whole number of at least 1"]),
        (["bench", "stage", "--size-mib", "inf"], ["--size-mib", "'inf' is not a number above 0"]),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(cli: Cli, words: list[str], parts: list[str]) -> None:
    refused(cli(*words), *parts)


def test_bad_settings_and_variables_are_named(cli: Cli, env: dict[str, str]) -> None:
    refused(cli("ask", "hi", STRATA_TUI_STAGER="tape"), "STRATA_TUI_STAGER is 'tape'", "auto, ram, ssd")
    Path(env["STRATA_TUI_CONFIG"]).write_text("[engine]\nslots = -1\n")
    refused(cli("ask", "hi"), env["STRATA_TUI_CONFIG"], "engine.slots = -1")
    Path(env["STRATA_TUI_CONFIG"]).write_text('model = "gone.gguf"\n')
    refused(cli("ask", "hi"), str(Path(env["STRATA_TUI_CONFIG"]).with_name("gone.gguf")))


def test_piped_input_must_be_text(cli: Cli) -> None:
    refused(cli("ask", "what is this", stdin=b"\x89PNG\xff"), "not UTF-8 text")


def test_a_cut_gguf_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")
    refused(cli("ask", "hi", "-m", "cut.gguf"), "cut.gguf")


@pytest.mark.timeout(60)  # opening the pipe would wait for its writer
def test_a_pipe_or_socket_is_no_model(cli: Cli, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    refused(cli("ask", "hi", "-m", "pipe.gguf"), "pipe.gguf is not a regular file")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(tmp_path / "s"))
        refused(cli("ask", "hi", "-m", "s"), "s is not a regular file")


@pytest.mark.timeout(60)  # as above
def test_settings_and_imports_are_read_from_regular_files_only(cli: Cli, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/full", "/dev/null", str(tmp_path / "pipe")):
        refused(cli("models", STRATA_TUI_CONFIG=path), f"The settings file {path} is not a regular file", "on a disk")
        refused(cli("import", path), f"{path} is not a regular file: name an export on a disk.")
    done = cli("doctor", STRATA_TUI_CONFIG="/dev/full")
    assert done.returncode == 1 and "FAULT: The settings file /dev/full is not a regular file" in done.stdout
