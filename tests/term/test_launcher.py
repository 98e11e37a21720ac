from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from strata_tui.errors import UserError
from strata_tui.term.launcher import supervise

from .conftest import LAUNCH, Terminal

Supervised = Callable[..., Terminal]

SCREEN = """
import os, signal, sys, termios, tty
print("before")
os.write(1, b"\\x1b[?1049h\\x1b[>29u\\x1b[?1000h\\x1b[?1003h\\x1b[?1006h\\x1b[?2004h\\x1b[?1004h\\x1b[?25l\\x1b[?7l")
saved = termios.tcgetattr(0)
tty.setraw(0)
os.write(1, b"PICTURE")
"""
# A full-screen program of the real library, which dies on its first idle moment
TEXTUAL = """
import os, sys
from pathlib import Path
from strata_tui.term.stderr_guard import install
install(Path(sys.argv[1]))
from textual.app import App
from textual.widgets import Label

class Screen(App):
    def compose(self):
        yield Label("PICTURE")
    def on_mount(self):
        os.write(2, b"a native line\\n")
        self.set_timer(0.3, os.abort)

Screen().run()
"""
NORMAL = {7: True, 25: True}  # DEC modes that are on in a terminal at rest


def modes(output: bytes) -> dict[int, bool]:
    """The last state of each DEC private mode."""
    found = re.findall(rb"\x1b\[\?([0-9;]+)([hl])", output)
    return {int(number): end == b"h" for numbers, end in found for number in numbers.split(b";")}


def assert_normal(output: bytes) -> None:
    state = modes(output)
    assert {number for number, on in state.items() if on != NORMAL.get(number, False)} == set()
    assert output.count(b"\x1b[<u") == len(re.findall(rb"\x1b\[>[0-9]+u", output)), "kitty keyboard flags left"
    # the flags are kept for each of the two screens: they must be gone before the alternate one is left
    assert output.rindex(b"\x1b[<u") < output.rindex(b"\x1b[?1049l")
    assert b"\x1b[0m" in output[output.rindex(b"\x1b[?1049l") :]


@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV", "SIGKILL"])
def test_a_death_by_signal_leaves_a_usable_terminal(supervised: Supervised, tmp_path: Path, name: str) -> None:
    output, code, restored = supervised(SCREEN + f"os.kill(os.getpid(), signal.{name})").result()
    assert_normal(output)
    assert restored
    assert code == 128 + signal.Signals[name]
    told = output[output.rindex(b"\x1b[") :].removeprefix(b"\x1b[0m").decode()
    assert told == (
        f"strata-tui: The chat was killed by {name}. The log is {tmp_path}/logs/engine.log; "
        "go on with: strata-tui chat --continue\r\n"
    )


def test_what_textual_switches_on_is_switched_off(supervised: Supervised, tmp_path: Path) -> None:
    log = tmp_path / "own.log"
    output, code, restored = supervised(TEXTUAL, str(log), f"--log={log}").result()
    drawn = output[: output.index(b"strata-tui:")]
    assert b"PICTURE" in drawn
    assert b"native" not in output
    assert sum(modes(output[: output.index(b"PICTURE")]).values()) >= 4, "the screen was never up"
    assert_normal(output)
    assert restored
    assert code == 128 + signal.SIGABRT
    assert f"The log is {log};".encode() in output
    noted = log.read_text()
    assert noted.startswith("a native line\n")
    assert "Fatal Python error: Aborted" in noted


def test_an_exit_that_leaves_the_terminal_raw_is_repaired(supervised: Supervised) -> None:
    output, code, restored = supervised(SCREEN + "os._exit(3)").result()
    assert_normal(output)
    assert restored
    assert code == 3
    assert b"The chat ended (exit code 3) without leaving the screen." in output


def test_a_terminal_that_stdin_can_only_read_is_repaired(supervised: Supervised) -> None:
    reading = "import os; os.dup2(os.open('/dev/tty', os.O_RDONLY), 0); " + LAUNCH
    output, _, restored = supervised(SCREEN + "os.abort()", launch=reading).result()
    assert_normal(output)
    assert restored


@pytest.mark.parametrize("code", [0, 2, 130])
def test_a_proper_exit_is_left_alone(supervised: Supervised, code: int) -> None:
    program = f"""
import sys, termios, tty
saved = termios.tcgetattr(0)
tty.setraw(0)
termios.tcsetattr(0, termios.TCSANOW, saved)
print("START")
print("the last words", end="")
sys.exit({code})
"""
    terminal = supervised(program)
    terminal.read_until(b"START\r\n")
    assert terminal.result() == (b"the last words", code, True)


def test_an_uncaught_exception_is_told_and_nothing_reset(supervised: Supervised) -> None:
    terminal = supervised("import sys; print('START'); sys.exit(1)")
    terminal.read_until(b"START\r\n")
    output, code, _ = terminal.result()
    assert code == 1
    assert b"\x1b" not in output
    assert output.startswith(b"strata-tui: The chat ended with an error. The log is ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_parent_ends_the_child(supervised: Supervised, number: signal.Signals) -> None:
    terminal = supervised(SCREEN + "os.write(1, f'CHILD {os.getpid()}\\n'.encode()); signal.pause()")
    launcher, child = terminal.number_after(b"LAUNCHER "), terminal.number_after(b"CHILD ")
    os.kill(launcher, number)
    output, code, restored = terminal.result()
    assert code == 128 + number
    assert restored
    assert f"killed by {number.name}".encode() in output
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@pytest.mark.parametrize(("key", "name"), [(b"\x03", "SIGINT"), (b"\x1c", "SIGQUIT")])
def test_signal_keys_are_the_childs_to_answer(supervised: Supervised, key: bytes, name: str) -> None:
    program = f"""
import signal, sys
default = signal.default_int_handler if "{name}" == "SIGINT" else signal.SIG_DFL
assert signal.getsignal(signal.{name}) == default
signal.signal(signal.{name}, lambda *_: sys.exit(5))
print("START", flush=True)
signal.pause()
"""
    terminal = supervised(program)
    terminal.read_until(b"START\r\n")
    terminal.type(key)
    output, code, _ = terminal.result()
    assert code == 5
    assert b"strata-tui" not in output


def test_ctrl_z_stops_the_whole_job_and_it_goes_on(supervised: Supervised) -> None:
    terminal = supervised("print('START', flush=True); print('got', input())")
    terminal.read_until(b"START\r\n")
    terminal.type(b"\x1a")
    terminal.read_until(b"STOPPED\r\n")
    terminal.type(b"go on\n")  # read by the shell
    terminal.type(b"a line\n")  # read by the child
    output, code, _ = terminal.result()
    assert code == 0
    assert b"got a line" in output


def test_without_job_control_a_stopped_child_goes_on_at_once(supervised: Supervised) -> None:
    program = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP); print('goes on')"
    output, code, _ = supervised(program, how="orphan").result()
    assert code == 0
    assert b"goes on" in output


def test_a_terminal_that_another_job_has_is_not_touched(supervised: Supervised) -> None:
    output, code, _ = supervised("import os; os.abort()", how="background").result()
    assert code == 128 + signal.SIGABRT
    assert b"killed by SIGABRT" in output
    assert b"\x1b" not in output


def test_without_a_terminal_the_child_is_only_run(environ: dict[str, str]) -> None:
    program = "import os, sys; os.write(1, sys.stdin.buffer.read()); os.abort()"
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, sys.executable, "-c", program], input=b"a\nb", capture_output=True, env=environ
    )
    assert done.returncode == 128 + signal.SIGABRT
    assert done.stdout == b"a\nb"
    assert b"\x1b" not in done.stderr
    assert b"killed by SIGABRT" in done.stderr


def test_what_is_ignored_from_outside_stays_ignored(environ: dict[str, str]) -> None:
    program = "import signal; print(signal.getsignal(signal.SIGHUP).name, signal.getsignal(signal.SIGTERM).name)"
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); " + LAUNCH
    done = subprocess.run(
        [sys.executable, "-c", ignoring, sys.executable, "-c", program], capture_output=True, env=environ
    )
    assert (done.returncode, done.stdout) == (0, b"SIG_IGN SIG_DFL\n")


def test_a_child_that_cannot_be_started_is_told_and_handlers_are_put_back(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTSTP, signal.SIGTERM)]
    with pytest.raises(UserError, match="cannot be started: .*/missing: No such file"):
        supervise([str(tmp_path / "missing")])
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTSTP, signal.SIGTERM)] == before
