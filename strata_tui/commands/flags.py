"""Flags that several commands share, and what they mean."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..config import AUTO, SPECS, Given, Settings, flag_of, load_given
from ..engine.gguf_file import open_gguf
from ..errors import UserError

_HELP = {
    "model": (
        "PATH",
        "the GGUF file, the first of its shards, or a part of a name that `strata-tui models` lists "
        "(default: the settings' model, else the demo model)",
    ),
    "context": ("N", "context length in tokens"),
    "slots": ("N", "expert slots"),
    "vram_gib": ("GIB", "most VRAM to take"),
    "reserve_gib": ("GIB", "VRAM to leave free"),
    "ram_gib": ("GIB", "most RAM to take"),
    "mirror_gib": ("GIB", "size of the mirror in pinned RAM"),
    "gpu": ("N", "CUDA device; -1: the CPU (default: the card with most free VRAM)"),
    "threads": ("N", "CPU threads"),
    "batch": ("N", "prompt tokens computed at once"),
    "stream_from": ("N", "tokens of a batch from which its experts stream through the ring; 0: never"),
    "ring_gib": ("GIB", "memory of the ring's own (default: it borrows slots)"),
    "pinning": ("MODE", "page-lock the stage pool: auto, on or off"),
    "stager": ("MODE", "read experts from: auto, ram or ssd"),
    "stager_threads": ("N", "threads that read experts (default: as many as prove useful)"),
    "pool_buffers": ("N", "stage buffers: how many experts are read ahead (default: 24)"),
    "residency": ("MODE", "which experts keep their slots: lru, adaptive or frozen"),
    "draft": ("N", "tokens to draft ahead: auto (what pays), off, or 1 to 4"),
    "draft_min_p": ("P", "end drafts where their joint confidence falls below P (default: 0)"),
    "profile": ("on|off", "fill the slots from the model's usage profile, and keep it (default: on)"),
    "snapshot_ram_gib": ("GIB", "RAM for KV snapshots, so that chats are not read again; 0: none (default: up to 1)"),
    "snapshot_disk_gib": ("GIB", "disk space for KV snapshots; 0: none (default: 4)"),
    "verify_cache": ("N", "compare some slots with the file every N rounds; 0: never (default)"),
    "temperature": ("X", "0: always the likeliest token"),
    "seed": ("N", "seed of the sampler"),
    "max_tokens": ("N", "longest reply"),
}


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `chat` and `ask`. Each is kept as text; `settings_of` checks it as a setting."""
    group = parser.add_argument_group("model and engine", "Most numbers may also be the word auto.")
    for name, (metavar, text) in _HELP.items():
        add_setting(group, name, metavar, text)
    for name, flag, value in (("mirror_gib", "--no-mirror", "0"), ("profile", "--no-profile", "off")):
        same = f"the same as {flag_of(name)} {value}"
        group.add_argument(flag, dest=name, action="store_const", const=value, default=argparse.SUPPRESS, help=same)
    group.add_argument("--log", metavar="FILE", help="where the engine's log goes")


def add_setting(group: argparse._ActionsContainer, name: str, metavar: str, text: str, *short: str) -> None:
    """Adds one setting's flag."""
    names = ("-m", flag_of(name)) if name == "model" else (*short, flag_of(name))
    group.add_argument(*names, dest=name, metavar=metavar, default=argparse.SUPPRESS, help=text)


def find_model(args: argparse.Namespace) -> None:
    """Puts a file's path in place of the name of a model that `strata-tui models` finds. Raises UserError.

    A name that no model has is left as it is: the file is then missed by who opens it.
    """
    text = getattr(args, "model", None)
    if text is None or text == AUTO or text.endswith(".gguf") or os.path.exists(os.path.expanduser(text)):
        return
    from ..catalog.names import choose
    from ..catalog.places import places
    from ..catalog.scan import scan

    found = choose(text, scan(places(load_given().sections.folders)))
    if found is not None:
        args.model = str(found.path)


def settings_of(args: argparse.Namespace) -> Settings:
    """Defaults, settings file, environment and flags together. Raises UserError."""
    return given_of(args).settings


def given_of(args: argparse.Namespace) -> Given:
    """The same, by where each setting comes from. Raises UserError."""
    return load_given({n: str(getattr(args, n)) for n in SPECS if hasattr(args, n)})


def log_of(args: argparse.Namespace) -> Path | None:
    """The log's path, which can be written. Raises UserError."""
    return None if args.log is None else checked_log(Path(args.log))


def checked_log(path: Path) -> Path:
    """`path`, after trying to open it for writing. Raises UserError."""
    try:
        path.open("a").close()
    except OSError as error:
        raise UserError(f"The log file {path} cannot be written: {error.strerror}.") from error
    return path


def check_model_file(path: Path) -> None:
    """Raises UserError for what is certainly no model; quick, nothing is imported for it."""
    open_gguf(path).close()
