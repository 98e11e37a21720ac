"""The command line. Nothing heavy is imported before it is known to be needed.

Exit codes: 0 done; 1 `doctor` found a fault; 2 bad input or a failure, told in one sentence on stderr;
130 stopped by Ctrl-C; 141 the reader of our output went away.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from . import __version__
from .commands import ask, bench, chat, doctor, export, imports, models, pull, sessions
from .errors import UserError

COMMANDS = {
    "chat": chat,
    "ask": ask,
    "sessions": sessions,
    "export": export,
    "import": imports,
    "models": models,
    "pull": pull,
    "bench": bench,
    "doctor": doctor,
}


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what only a write can fail with


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, like the rest of the program."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message[:1].upper()}{message[1:]}; see {self.prog} --help.")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 gets question marks, not an exception
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except UserError as error:
        print("strata-tui:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _drop_output()
        return 141
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _drop_output()
        print(f"strata-tui: The output cannot be written: {error.strerror}.", file=sys.stderr)
        return 2


def _drop_output() -> None:
    """Keeps the interpreter from complaining when, at its end, it flushes what nobody takes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser() -> Parser:
    """The parser of everything but bench's own arguments."""
    parser = Parser(
        prog="strata-tui",
        description="Chat in the terminal with mixture-of-experts models bigger than the graphics card.",
        epilog="Without a command, chat is started, and takes its flags: strata-tui -m model.gguf -c",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"strata-tui {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        sub = commands.add_parser(name, help=module.HELP, description=module.HELP, allow_abbrev=False)
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return parser


def _run(argv: list[str]) -> int:
    first = argv[0] if argv else ""
    if first == "bench":
        return bench.run_with(Parser(prog="strata-tui bench", description=bench.HELP), argv[1:])
    if first not in COMMANDS and first not in ("-h", "--help", "--version"):
        if first and not first.startswith("-"):
            names = ", ".join(COMMANDS)
            raise UserError(f"There is no command {first!r}: the commands are {names}.")
        argv = ["chat", *argv]
    args = build_parser().parse_args(argv)
    code: int = args.run(args)
    return code
