"""The chat in plain lines, on the real engine and a small random model."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from model_fixtures import TinyModel

from strata_tui.config import ChatOptions, Given
from strata_tui.engine.engine import EngineOptions
from strata_tui.plain.lines import Lines, Steps
from strata_tui.plain.repl import run
from strata_tui.sections import Sections
from strata_tui.sessions.rows import Role, Status
from strata_tui.sessions.store import Store

Talk = Callable[..., str]


@pytest.fixture
def talk(tmp_path: Path, tiny_model: TinyModel) -> Talk:
    """`talk(line, ...)`: what the program writes when a person writes these lines."""

    def say(*lines: str, resume: int | None = None, folders: tuple[Path, ...] = ()) -> str:
        given = Given(
            file={"temperature": 0.0, "max_tokens": 12, "system": "Be brief."}, sections=Sections(folders=folders)
        )
        options = ChatOptions(
            given.settings,
            EngineOptions(gpu=-1, threads=1, context=512),
            tiny_model("qwen3moe"),
            resume=resume,
            store=tmp_path / "chats.sqlite3",
            settings_file=tmp_path / "settings.toml",
            given=given,
        )
        out = io.StringIO()
        assert run(options, Lines(io.StringIO("".join(f"{line}\n" for line in lines)), out)) == 0
        return out.getvalue()

    return say


def test_a_message_and_its_reply(talk: Talk, tmp_path: Path) -> None:
    said = talk("hello", "/quit", "never read")
    assert "tiny qwen3moe, Q4_0, is ready; its context holds 512 tokens.\n" in said
    assert "\ntiny qwen3moe:\n" in said and "The reply was cut: " in said
    assert "\x1b" not in said and "\r" not in said
    with Store(tmp_path / "chats.sqlite3") as store:
        [info] = store.list_sessions()
        assert (info.title, info.system, info.messages) == ("hello", "Be brief.", 2)
        user, reply = store.branch(info.id)
        assert (user.role, user.text, reply.status) == (Role.USER, "hello", Status.DONE)
        assert reply.text in said and reply.params is not None and reply.params["max_tokens"] == 12
        assert reply.reply_stats is not None and reply.reply_stats.reply_tokens == 12


def test_messages_of_several_lines_and_attachments(talk: Talk, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("inside\n")
    said = talk("one\\", "two", f"/attach {tmp_path}/a.txt", '"""', "three", "", "/new is text", '"""', "//quit")
    assert "goes with the next message" in said
    with Store(tmp_path / "chats.sqlite3") as store:
        [info] = store.list_sessions()
        texts = [row.text for row in store.branch(info.id) if row.role is Role.USER]
        assert texts[0] == "one\ntwo" and texts[2] == "/quit"
        assert texts[1].startswith("three\n\n/new is text\n\nFile `") and "inside" in texts[1]


def test_chats(talk: Talk, tmp_path: Path) -> None:
    talk("the first")
    said = talk(
        "/rename Mine",
        "the second",
        "/chats",
        "/chats 1",
        "/delete",
        "/chats",
        "/undo",
        "/chats 99",
        "/chats x",
        "/search second",
    )
    assert "  2: Mine (2 messages, this one)\n  1: the first (2 messages)\n" in said
    assert "Chat 1: the first, 2 messages.\nYou: the first\n" in said
    assert "Deleted; /undo brings it back. This is a new chat.\n  2: Mine (2 messages)\n/chats" in said
    assert said.count("Chat 1: the first") == 2
    assert "Error: There is no chat 99" in said and "Error: x is no chat's number" in said
    assert "  2: Mine: the second\n" in said
    assert "You: the first" in talk(resume=1)


def test_replies_again_and_branches(talk: Talk, tmp_path: Path) -> None:
    said = talk("/regen", "/continue", "/edit x", "/branch", "one", "/branch")
    assert said.count("Error: There is no message of yours in this chat yet.") == 2
    assert "Error: There is no reply to go on with" in said and said.count("Error: There is one branch only") == 2
    said = talk("/continue", "/regen", "/edit", "/edit two", "/branch", "/branch prev", "/branch 3", resume=1)
    assert "Your last message: one\nError: Say what to send in its place" in said
    assert said.count("Branch 1 of 2.\nYou: one\n") == 2  # of the messages, then of the replies to the first
    assert "Error: /branch takes next, prev or a number from 1 to 2; not 3." in said
    with Store(tmp_path / "chats.sqlite3") as store:
        tree = store.tree(1)
        one, two = tree.children(None)
        assert (one.text, two.text) == ("one", "two")
        longer, again = tree.children(one.id)
        stats = longer.reply_stats
        assert stats is not None and stats.reply_tokens == 24  # written in two parts
        assert longer.text.startswith(again.text) and len(longer.text) > len(again.text)
        assert [row.id for row in store.branch(1)] == [one.id, longer.id]


def test_the_bin_and_what_is_kept_on_top(talk: Talk, tmp_path: Path) -> None:
    talk("the first")
    said = talk("/bin", "/pinchat", "the second", "/pinchat", "/delete", "/bin", "/bin 9", "/bin 2", "/pinchat")
    assert "No deleted chats." in said and "Error: This chat is new" in said and "Kept on top" in said
    assert "  2: the second (2 messages, 29 days left)\n" in said
    assert "Error: There is no deleted chat 9" in said and "Chat 2: the second" in said
    assert "No longer kept on top" in said
    talk("/delete", resume=1)
    assert "Chat 1: the first" in talk("/undo")  # deleted by a run before


def test_a_message_is_written_in_the_editor(talk: Talk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nprintf 'two\\nlines\\n' > \"$1\"\n")
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    talk("/editor")
    with Store(tmp_path / "chats.sqlite3") as store:
        assert store.branch(1)[0].text == "two\nlines"


def test_a_chat_that_is_open_elsewhere_is_only_read(talk: Talk, tmp_path: Path) -> None:
    talk("the first")
    with Store(tmp_path / "chats.sqlite3") as other:
        other.claim(1).result()
        said = talk(
            "more",
            "/fork",
            "more",
            f"/export json {tmp_path}/chats.sqlite3/x.json",
            f"/export md {tmp_path}/out.md",
            resume=1,
        )
        assert f"It is open in another window (process {os.getpid()}): /fork goes on in a copy." in said
        assert "Error: Chat 1 is open in another window" in said
        assert "Chat 2: " in said and "Error: " in said.rpartition("Chat 2: ")[2]
        assert other.session(1).messages == 2 and other.session(2).messages == 4
        assert "more" in (tmp_path / "out.md").read_text()


def test_options(talk: Talk, tmp_path: Path) -> None:
    said = talk("/set all top_p 0.5", "/set model seed 3", "/set all system Be odd.", "/new", "/system")
    assert "  top-p: 0.5 (settings)\n" in said and "  seed: 3 (settings, this model)\n" in said
    assert said.count("  system prompt: Be odd. (settings)\n") == 2
    kept = (tmp_path / "settings.toml").read_text()
    assert "top_p = 0.5" in kept and '[per_model."tiny qwen3moe"]\nseed = 3' in kept
    said = talk("/set top-k 7", "/set top_k", "/set top_k 7.5", "/system Be long.", "hi", "/options", "/thinking on")
    assert said.count("  top-k: 7 (this chat)\n") == 3
    assert "Error: top-k is '7.5'" in said and "  system prompt: Be long. (this chat)\n" in said
    assert "temperature: 0 (settings)" in said
    assert "chat template does not know thinking on" in said
    assert "tiny qwen3moe's chat template has no choice of thinking." in talk("/thinking")
    with Store(tmp_path / "chats.sqlite3") as store:
        [info] = store.list_sessions()
        assert (dict(info.options), info.system) == ({"top_k": 7}, "Be long.")


def test_models(talk: Talk, tmp_path: Path, tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "dense-Q8.gguf").symlink_to(tiny_model("llama_dense"))
    said = talk("/model", "/model dense", "/open", "/open /no/such.gguf", "hi", folders=(folder,))
    assert "  dense-Q8: " in said and "own folder\n" in said
    assert "tiny llama, Q8_0, is ready" in said
    assert "Error: Say which file: /open PATH, or /model NAME." in said
    assert "Error: There is no model file /no/such.gguf" in said
    assert "Error: No model is loaded" in said.rpartition("/no/such.gguf")[2]


def test_the_rest_of_the_commands(talk: Talk, tmp_path: Path) -> None:
    said = talk(
        "/help",
        "/plan",
        "/stager ssd",
        "/pin",
        "/think on",
        "/theme",
        "/nonsense",
        "/export",
        "hi",
        f"/export {tmp_path}/x.md",
    )
    assert "  /set [model|all] NAME VALUE: Set an option" in said and "/theme NAME" not in said
    assert "  trunk: " in said and "stager: ssd is asked for" in said
    assert "pinning: auto; it can be auto, on, off." in said and "Thinking is written out." in said
    assert "Error: /theme is for the screen and does nothing here" in said
    assert "Error: There is no command /nonsense" in said
    assert "Error: This chat is empty" in said and f"Written to {tmp_path}/x.md" in said
    assert 'stager = "ssd"' in (tmp_path / "settings.toml").read_text()


def test_a_message_too_long_is_not_sent_and_the_chat_goes_on(talk: Talk, tmp_path: Path) -> None:
    said = talk("words and more words " * 300, "short")
    assert "Error: Not sent: The conversation takes" in said and "tiny qwen3moe:" in said
    with Store(tmp_path / "chats.sqlite3") as store:
        [info] = store.list_sessions()
        assert [row.text for row in store.branch(info.id) if row.role is Role.USER] == ["short"]


def test_room_is_made_by_numbers(talk: Talk, tmp_path: Path) -> None:
    words = " ".join(["the people of water said that their expert could find a long way"] * 10)
    mine = f"mine {words} {words}"
    said = talk(f"one {words}", f"two {words}", mine, "/room", "/room 4", "/room 3 9", "/room 3 none", "/room 3")
    assert "Your message is kept: /room makes room for it." in said
    assert "This chat and your message take " in said and "of the context's 512 tokens; a reply should find 12" in said
    assert "\n  1: A larger context: 1 024 tokens. Opens the model again: KV cache " in said
    assert "\n  2: A new chat with messages 3 and 4 of 4. From “two the people" in said
    assert "\n  3: Leave messages out, and choose which. The oldest that must go are 1 and 2." in said
    assert "\n  Message 1, " in said and ". You: one the people" in said
    assert "Error: 4 is none of the choices" in said and "Error: 9 is no message of this chat" in said
    assert " tokens too many: leave out more." in said
    assert "Messages 1 and 2 are not sent from now on: " in said and "Sending your message: mine" in said
    with Store(tmp_path / "chats.sqlite3") as store:
        [info] = store.list_sessions()
        rows = store.branch(info.id)
        assert [row.sent for row in rows] == [False, False, True, True, True, True]
        assert rows[4].text == mine and rows[5].text and info.draft == ""


def test_room_by_a_fork_and_by_a_larger_context(talk: Talk, tmp_path: Path) -> None:
    words = " ".join(["the people of water said that their expert could find a long way"] * 10)
    mine = f"mine {words} {words}"
    said = talk(f"one {words}", f"two {words}", mine, "/room 2", "/chats 1", mine, "/room 1", "/room 1", "/room 2")
    with Store(tmp_path / "chats.sqlite3") as store:
        texts = [[row.text for row in store.branch(n) if row.role is Role.USER] for n in (1, 2)]
    assert texts == [[f"one {words}", f"two {words}", mine], [f"two {words}", mine]]
    assert "The context holds 1024 tokens; --ctx has it so from the start." in said
    assert said.count("Sending your message: mine") == 2
    assert "Error: The model was trained for 1024 tokens." in said and "Error: All of it fits." in said


def test_long_work_is_told_in_few_lines() -> None:
    said: list[str] = []
    steps = Steps(said.append)
    for done in range(100):
        steps.step("reading the trunk", done, 100)
    steps.step("filling slots", 1, 2)
    assert said == ["Reading the trunk.", "Filling slots."]


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the tests may have been started with it ignored


class Pty:
    """The program in a pseudo-terminal."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env,
            start_new_session=True,
            preexec_fn=_own_terminal,
        )
        os.close(slave)
        self.seen = ""

    def until(self, text: str) -> None:
        while text not in self.seen:
            assert select.select([self.master], [], [], 60)[0], self.seen
            self.seen += os.read(self.master, 65536).decode()

    def type(self, text: str) -> None:
        self.seen = ""
        os.write(self.master, text.encode())

    def rest(self) -> str:
        """What it wrote until its end."""
        with contextlib.suppress(OSError):  # nobody has the other end any more
            while select.select([self.master], [], [], 1)[0]:
                self.seen += os.read(self.master, 65536).decode()
        return self.seen


@pytest.mark.parametrize("term", ["dumb", None])
def test_a_simple_terminal_gets_it_by_itself(term: str | None, tmp_path: Path, demo_model: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("STRATA_TUI_") and k != "TERM"}
    env |= {f"STRATA_TUI_{n}": str(tmp_path / n) for n in ("DATA", "CACHE", "LOGS", "CONFIG")}
    env |= {"TERM": term} if term else {}
    flags = ["-m", str(demo_model), "--gpu", "-1", "--threads", "1", "--ctx", "1024"]  # slow enough to be stopped
    program = Pty([sys.executable, "-P", "-m", "strata_tui", *flags], env)  # -P: the installed package
    try:
        program.until("so the chat is in plain lines, as with --plain.")
        program.until("You: ")
        everything = program.seen
        program.type("Count from one to one hundred, in words.\n")
        program.until("24 experts:\r\n")
        program.type("\x03")
        program.until("Stopped. What was written is kept.")
        program.until("You: ")
        everything += program.seen
        program.type("\x03")
        program.until("ctrl+c again, or /quit, quits.")
        program.type("\x04")
        assert program.process.wait(30) == 0, program.rest()
        assert "\x1b" not in everything
    finally:
        program.process.kill()
        program.process.wait()
        os.close(program.master)
    with Store(tmp_path / "DATA" / "chats.sqlite3") as store:
        [info] = store.list_sessions()
        assert store.branch(info.id)[1].status is Status.STOPPED


def test_nothing_of_the_screen_is_loaded() -> None:
    code = "import sys; import strata_tui.plain.repl; print([m for m in sys.modules if m.startswith('textual')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
