"""`strata-tui doctor`: what this installation consists of, and whether it can work. One line each."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from .. import __version__
from ..config import cache_dir, config_file, data_dir, load_settings, log_dir, store_path
from ..errors import UserError

HELP = "Check versions, devices, folders, terminal and memory."

Line = tuple[str, str, bool]  # what, its value, whether it is in order


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None."""


def run(args: argparse.Namespace) -> int:
    healthy = True
    for check in (_versions, _engine, _folders, _settings, _chats, _terminal, _memory):
        for what, value, good in _guarded(check):
            healthy = healthy and good
            print(f"{what:<18} {'' if good else 'FAULT: '}{value}")
    return 0 if healthy else 1


def _guarded(check: Callable[[], Iterator[Line]]) -> Iterator[Line]:
    """The check's lines; what it raises for people to read becomes its last one."""
    try:
        yield from check()
    except UserError as error:
        yield check.__name__.strip("_"), str(error), False


def _versions() -> Iterator[Line]:
    import sqlite3
    from importlib.metadata import PackageNotFoundError, version

    yield "strata-tui", __version__, True
    yield "python", f"{platform.python_version()} ({sys.executable})", True
    yield "system", platform.platform(), True
    yield "sqlite", sqlite3.sqlite_version, True
    for package in ("llama-cpp-python", "textual", "gguf", "numpy", "nvidia-ml-py"):
        try:
            yield package, version(package), True
        except PackageNotFoundError:
            yield package, "not installed", False


def _engine() -> Iterator[Line]:
    from ..engine import native

    core = native.load()
    yield "engine", f"extension {core.__file__}, ggml {core.runtime_ggml_version()}", True
    for device in native.devices():
        memory = f"{device.total / 2**30:.1f} GiB"
        if device.type != "CPU":  # ggml does not know the free RAM; see the line ram
            memory = f"{device.free / 2**30:.1f} of {memory} free"
        yield f"device {device.name}", f"{device.description} ({device.type}), {memory}", True
    notice = native.gpu_notice()
    if notice is not None:
        yield "gpu", notice, False
    yield from _guarded(_device)


def _device() -> Iterator[Line]:
    from ..engine import native

    yield "runs on", native.pick_device(load_settings().gpu), True


def _folders() -> Iterator[Line]:
    for what, folder in (("data", data_dir()), ("cache", cache_dir()), ("logs", log_dir())):
        yield f"{what} folder", *_writable(folder)
    yield "settings folder", *_writable(config_file().parent)


def _writable(folder: Path) -> tuple[str, bool]:
    """Whether a file can be made in the folder, or in the nearest one above it that exists."""
    nearest = folder
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        return f"{folder} cannot be written: {nearest} is not a folder", False
    try:
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror}", False
    return f"{folder}{'' if nearest == folder else ' (not made yet)'}", True


def _settings() -> Iterator[Line]:
    path = config_file()
    settings = load_settings()
    yield "settings", f"{path}" if path.exists() else f"{path} (not made yet: defaults)", True
    model = settings.model
    if model is None:
        yield "model", "the demo model", True
    else:
        yield "model", f"{model}", model.is_file()


def _chats() -> Iterator[Line]:
    from ..sessions.store import Store

    if not store_path().exists():
        yield "chats", f"{store_path()} (not made yet)", True
        return
    with Store() as store:
        yield "chats", f"{len(store.list_sessions())} in {store.path}", True


def _terminal() -> Iterator[Line]:
    names = ("TERM", "COLORTERM", "TERM_PROGRAM", "TMUX", "STY", "SSH_TTY", "NO_COLOR", "LANG")
    known = ", ".join(f"{n}={os.environ[n]}" for n in names if os.environ.get(n))
    if sys.stdout.isatty():
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
        yield "terminal", f"{columns} x {lines}, {known}", True
    else:
        yield "terminal", f"output is no terminal; {known}", True


def _memory() -> Iterator[Line]:
    from ..engine.telemetry import physical_cores, ram

    memory = ram()
    if memory.available is None or memory.total is None:
        yield "ram", "unknown", True
    else:
        amounts = f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB available"
        yield "ram", f"{amounts} (limit: {memory.limit_from})", True
    yield "cores", str(physical_cores()), True
