"""`strata-tui bench`: hands its arguments to the measurements, which are imported only then."""

from __future__ import annotations

import argparse

HELP = "Measure the engine."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None: `run_with` parses them, so that the other commands do not import the measurements."""


def run(args: argparse.Namespace) -> int:
    raise AssertionError("cli hands bench's arguments to run_with")


def run_with(parser: argparse.ArgumentParser, argv: list[str]) -> int:
    """Runs one measurement. Each parser that `add_parsers` adds has a default `run`: Namespace -> exit code."""
    from ..bench import add_parsers

    add_parsers(parser.add_subparsers(metavar="MEASUREMENT", required=True))
    args = parser.parse_args(argv)
    code: int = args.run(args)
    return code
