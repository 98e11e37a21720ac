"""The command line as a person runs it: real processes, exit codes, one sentence on stderr."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.util
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from strata_tui import __version__, config
from strata_tui.cli import COMMANDS, build_parser
from strata_tui.commands import chat
from strata_tui.commands.flags import settings_of
from strata_tui.commands.stats import stats_lines
from strata_tui.engine.counters import Counters, PhaseCounters, ReplyStats
from strata_tui.engine.modes import Residency
from strata_tui.sessions.rows import Status
from strata_tui.sessions.store import Store

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
COMMAND = [sys.executable, "-P", "-m", "strata_tui"]  # -P: not the checkout that the tests may run in

needs_engine = pytest.mark.skipif(
    importlib.util.find_spec("strata_tui.engine._core") is None, reason="the extension is not built"
)


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


def refused(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """Exit code 2, nothing on stdout, and one line on stderr that holds all parts."""
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("strata-tui: ")
    assert done.stderr.count("\n") == 1, done.stderr
    for part in parts:
        assert part in done.stderr


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


@pytest.mark.timeout(60)
def test_an_export_is_written_to_no_device(cli: Cli, chats: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/full", "/dev/stdout", str(tmp_path / "pipe")):
        refused(cli("export", "-o", path), f"cannot be written to {path}", "on a disk")
        assert not Path(f"{path}-2").exists()


def in_terminal(env: dict[str, str], size: tuple[int, int], *words: str) -> tuple[int, str]:
    """Exit code and stderr of a run on a real pseudo-terminal of (columns, lines)."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    try:
        done = subprocess.run([*COMMAND, *words], stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=env)
    finally:
        os.close(master)
        os.close(slave)
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize(
    ("size", "change", "words", "part"),
    [
        ((39, 24), {}, [], "it has 39 columns and 24 lines, the chat needs 40 and 10"),
        ((80, 9), {}, [], "it has 80 columns and 9 lines"),
        ((80, 24), {}, ["-m", "/no/such.gguf"], "no model file /no/such.gguf"),
        ((80, 24), {}, ["-c"], "no chat to go on with"),
        ((80, 24), {}, ["--resume", "7"], "no chat 7"),
        ((80, 24), {}, ["-c", "--resume", "7"], "cannot be used together"),
        ((80, 24), {"STRATA_TUI_DATA": "/proc/none"}, [], "Chats cannot be kept in /proc/none"),
        ((80, 24), {"STRATA_TUI_LOGS": "/proc/none"}, [], "set STRATA_TUI_LOGS"),
    ],
)
def test_chat_says_what_keeps_it_from_starting(
    env: dict[str, str], size: tuple[int, int], change: dict[str, str], words: list[str], part: str
) -> None:
    code, said = in_terminal(env | change, size, "chat", *words)
    assert code == 2
    assert part in said
    assert said.count("\n") == 1


def test_a_deleted_chat_is_not_resumed(env: dict[str, str], chats: Path) -> None:
    with Store(chats) as store:
        store.delete(1).result()
    code, said = in_terminal(env, (80, 24), "chat", "--resume", "1")
    assert (code, said) == (2, "strata-tui: Chat 1 was deleted.\n")


def test_the_child_gets_the_same_flags() -> None:
    words = ["chat", "-m", "a b.gguf", "--gpu", "-1", "--ctx", "4096", "--theme", "-x", "--log", "l", "--pinning", "on"]
    parser = build_parser()
    # "-x" can only be given as --theme=-x; it must reach the child in that form too
    words[words.index("--theme") : words.index("--theme") + 2] = ["--theme=-x"]
    given = parser.parse_args(words)
    again = parser.parse_args(["chat", *chat._flags(given, 12), "--child"])
    expected = argparse.Namespace(**vars(given) | {"resume": 12, "child": True})
    assert again == expected


def test_flags_that_turn_something_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRATA_TUI_CONFIG", str(tmp_path / "settings.toml"))
    flags = ["chat", "--no-mirror", "--no-profile", "--residency", "adaptive", "--verify-cache", "8"]
    given = build_parser().parse_args(flags)
    settings = settings_of(given)
    options = settings.engine_options()
    assert (options.mirror_gib, options.profiles, options.verify_cache) == (0.0, None, 8)
    assert options.modes.residency is Residency.ADAPTIVE
    assert settings_of(build_parser().parse_args(["chat", *chat._flags(given, None), "--child"])) == settings
    on = settings_of(build_parser().parse_args(["chat", "--no-profile", "--profile", "on"])).engine_options()
    assert on.profiles == config.profile_dir()


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


def test_no_sessions(cli: Cli) -> None:
    done = cli("sessions")
    assert (done.returncode, done.stdout) == (0, "")
    assert "No chats" in done.stderr
    assert json.loads(cli("sessions", "--json").stdout) == []


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


def write_gguf(path: Path, experts: int) -> None:
    """A file with a header like a model's and one expert tensor; not enough to run."""
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_name("Tiny")
    writer.add_block_count(1)
    writer.add_context_length(2048)
    writer.add_expert_count(experts)
    writer.add_expert_used_count(2)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for part in ("gate", "up", "down"):
        writer.add_tensor(f"blk.0.ffn_{part}_exps.weight", np.zeros((experts, 8, 8), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_models(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    (folder / "deep").mkdir(parents=True)
    write_gguf(folder / "deep" / "tiny.gguf", 4)
    (folder / "again.gguf").symlink_to(folder / "deep" / "tiny.gguf")
    (folder / "broken.gguf").write_bytes(b"not a model")
    (folder / "big-00002-of-00002.gguf").write_bytes(b"a later shard is not listed by itself")
    (folder / "gone.gguf").symlink_to(folder / "nowhere")
    (folder / "notes.txt").write_text("no model")
    done = cli("models", str(folder))
    assert done.returncode == 0
    (line,) = done.stdout.splitlines()  # one file, under one name
    assert "qwen3moe" in line
    assert "4 experts, 2 used" in line
    assert line.endswith("again.gguf")
    (warning,) = done.stderr.splitlines()
    assert "left out" in warning
    assert "broken.gguf" in warning
    record, broken = json.loads(cli("models", "--json", "--plan", str(folder)).stdout)
    assert (record["n_experts"], record["context_trained"], record["expert_bytes"]) == (4, 2048, 3 * 4 * 8 * 8 * 4)
    assert record["plan"]["slots"] < record["plan"]["experts"] == 4
    assert broken["path"].endswith("broken.gguf") and "not a GGUF" in broken["problem"]
    assert "2 of 4 slots, 2048 ctx" in cli("models", "--plan", str(folder)).stdout


def test_no_models(cli: Cli, tmp_path: Path) -> None:
    done = cli("models")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"No GGUF files in {tmp_path / 'hub'}, /none" in done.stderr


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


def test_stats_lines_show_a_dash_for_what_is_unknown() -> None:
    assert "- tokens/s, first token after - s" in stats_lines(ReplyStats())[0]
    assert stats_lines(ReplyStats())[3] == "hit rate  prompt -, decode -"
    assert "0 evictions, - swaps," in stats_lines(ReplyStats())[4]
    stats = ReplyStats(
        prompt_tokens=30,
        reused_tokens=10,
        reused_ram=10,
        reused_disk=0,
        reply_tokens=21,
        prompt_seconds=0.5,
        first_token_seconds=0.625,
        decode_seconds=2.0,
        counters=Counters(
            PhaseCounters(picks=4, hits=1, loads=3, loads_staged=3, bytes_copied=3 << 19, bytes_filled=3 << 20),
            PhaseCounters(
                picks=8, hits=6, loads=2, loads_mirror=2, evictions=2, bytes_copied=1 << 20, asks=9, asks_cached=5
            ),
            swaps=7,
        ),
        context_used=51,
        context_total=4096,
    )
    assert stats_lines(stats) == [
        "prompt    30 tokens, 10 of them reused, 40.0 tokens/s, first token after 0.62 s",
        "known     10 tokens from a KV snapshot in RAM, 0 from one on the disk, - read again",
        "reply     21 tokens, 10.0 tokens/s",
        "hit rate  prompt 25.0%, decode 75.0%",
        "experts   5 loads (2 from the mirror, 3 staged), 2 evictions, 7 swaps, 2.5 MiB copied",
        "reading   3.0 MiB from the file, 0.0 of them past the page cache; 9 asks (5 cached) in 0.0 ms",
        "context   51 of 4096 tokens",
    ]


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
def test_a_full_disk_is_one_sentence(env: dict[str, str], demo_model: Path, chats: Path) -> None:
    ask = ["ask", "Hi", "-m", str(demo_model), "--ctx", "512", "--gpu", "-1", "--max-tokens", "2"]
    for words in (ask, ["sessions"], ["export", "-o", "-"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [*COMMAND, *words], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, env=env
            )
        said = "strata-tui: The output cannot be written: No space left on device.\n"
        assert (done.returncode, done.stderr.decode()) == (2, said)


@needs_engine
def test_a_log_that_cannot_be_written_is_one_sentence_and_the_reply_goes_on(cli: Cli, demo_model: Path) -> None:
    words = ["-m", str(demo_model), "--ctx", "512", "--gpu", "-1", "--max-tokens", "2", "--log", "/dev/full"]
    done = cli("ask", "Hi", *words)
    assert done.returncode == 0 and done.stdout.strip()
    said = [line for line in done.stderr.splitlines() if not line.startswith("strata-tui: the reply was cut")]
    why = "The log /dev/full cannot be written (No space left on device), and its lines are lost"
    assert len(said) == 1 and said[0].startswith(f"strata-tui: {why}"), done.stderr


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


@needs_engine
def test_a_model_may_be_named_as_it_is_listed(cli: Cli, tmp_path: Path, tiny_model: Callable[[str], Path]) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    for name in ("one-Q8", "two-Q8"):
        (folder / f"{name}.gguf").write_bytes(tiny_model("llama_dense").read_bytes())
    flags = ("--gpu", "-1", "--threads", "1", "--max-tokens", "3", "--ctx", "512")
    done = cli("ask", "hello", "-m", "one", *flags, LLAMA_CACHE=str(folder))
    assert done.returncode == 0, done.stderr
    refused(cli("ask", "hello", "-m", "q8", LLAMA_CACHE=str(folder)), "q8 may mean 2 models: one-Q8, two-Q8.")
    refused(cli("ask", "hello", "-m", "three", LLAMA_CACHE=str(folder)), "no model file")
