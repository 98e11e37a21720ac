from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

CHILD = """
import os, sys
from strata_tui.term.parent import end_with
end_with(int(sys.argv[1]))
print(os.getpid(), flush=True)
sys.stdin.read()
print("went on", flush=True)
"""
PARENT = f"""
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", {CHILD!r}, str(os.getpid())])
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_child_of_a_killed_parent_ends(number: signal.Signals) -> None:
    read, write = os.pipe()
    with open(write, "wb"):  # what they read never ends
        parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=read, stdout=subprocess.PIPE, text=True)
        os.close(read)
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, 0)
        parent.send_signal(number)
        assert parent.wait() == -number
        assert parent.stdout.read() == "", "the child has closed it, too, without a word"
        parent.stdout.close()


def test_a_parent_that_has_ended_already_is_noticed() -> None:
    other = subprocess.Popen([sys.executable, "-c", ""])
    other.wait()
    done = subprocess.run([sys.executable, "-c", CHILD, str(other.pid)], stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == -signal.SIGHUP
