"""`strata-tui pull`: fetches a model from the Hugging Face Hub."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import models_dir

if TYPE_CHECKING:
    from ..catalog.pull import Progress

HELP = "Fetch a model from the Hugging Face Hub; run again, it goes on where it was stopped."

_LINE_SECONDS, _REPORT_SECONDS = 0.2, 30.0  # between two reports: on a terminal, in a file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="REPO[:QUANT|:FILE]",
        help="such as owner/repo:Q4_K_M; a repository with one model needs no more",
    )
    parser.add_argument("--to", metavar="FOLDER", type=Path, help=f"default: {models_dir()}")
    parser.add_argument("--list", action="store_true", help="only list what the repository has")


def run(args: argparse.Namespace) -> int:
    from ..catalog.hub import Hub, parse_target
    from ..catalog.pull import Pull
    from ..engine.plan import gib

    target, hub = parse_target(args.target), Hub()
    if args.list:
        for one in hub.models(target.repo):
            files = f"{len(one.files)} files" if len(one.files) > 1 else one.files[0].name
            print(f"{gib(one.size):>11}  {one.label:<16} {files}")
        return 0
    model = hub.find(target)
    report = Report()
    try:
        path = Pull(hub, model, args.to or models_dir(), report.tell, lambda: False).run()
    except KeyboardInterrupt:
        report.end()
        print("strata-tui: Stopped. The same command goes on from there.", file=sys.stderr)
        return 130
    finally:
        report.end()
    print(path)
    return 0


class Report:
    """How far it is, on stderr: one line that changes on a terminal, now and then a line elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._last = float("-inf")
        self._rate = (0.0, 0)  # when and at how many bytes the stage began
        self._stage = ""
        self._drawn = False

    def tell(self, progress: Progress) -> None:
        """Takes progress; writes what is worth it."""
        now = time.monotonic()
        if progress.stage != self._stage:
            self._stage, self._rate, self._last = progress.stage, (now, progress.done), float("-inf")
        if now - self._last < (_LINE_SECONDS if self._terminal else _REPORT_SECONDS) and progress.done < progress.total:
            return
        self._last = now
        text = report_line(progress, now - self._rate[0], progress.done - self._rate[1])
        if self._terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
            self._drawn = True
        else:
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Takes the changing line away."""
        if self._drawn:
            self._drawn = False
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def report_line(progress: Progress, seconds: float, fetched: int) -> str:
    """`fetching Q4_K_M  1.20 of 18.55 GiB  6 %  41.2 MB/s  7 min left`."""
    from ..engine.plan import gib

    share = 100 * progress.done // progress.total if progress.total else 0
    text = f"{progress.stage}  {gib(progress.done)} of {gib(progress.total)}  {share} %"
    if seconds > 1 and fetched > 0:
        rate = fetched / seconds
        left = (progress.total - progress.done) / rate
        minutes = f"{left / 60:.0f} min" if left >= 90 else f"{left:.0f} s"
        text += f"  {rate / 1e6:.1f} MB/s  {minutes} left"
    return text
