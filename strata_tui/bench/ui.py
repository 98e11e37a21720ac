"""`strata-tui bench ui`: what the screen costs, on a pseudo-terminal, beside its budgets.

A scripted source writes prose and then code at a steady rate while keys are typed; --engine has a real model write
as well, and compares its speed with and without the screen. Lag: how late the event loop runs what is due.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import UserError
from .ranges import above_zero, whole
from .report import machine, table
from .ui_child import TYPING_SECONDS, Spec
from .ui_terminal import Terminal

SIZE = (120, 40)
KEY_SECONDS = 0.06
MESSAGES = 300
END = "⟦the end⟧"  # of the long chat; nothing else on the screen has it
PROMPT = "Message"  # begins the empty prompt's placeholder
READY = " ready"
ASKED = "Write a long story about a river."
LETTERS = "".join(map(chr, [*range(0x100, 0x180), *range(0x400, 0x500)]))  # none of them is in the texts


@dataclass(frozen=True, slots=True)
class Row:
    """One number; `budget` None: there is none. Both in `unit`; smaller is better."""

    name: str
    value: float | None
    unit: str
    budget: float | None = None
    note: str = ""

    @property
    def kept(self) -> bool | None:
        """Whether it is within its budget."""
        return None if self.budget is None or self.value is None else self.value < self.budget

    def cells(self) -> list[str]:
        """For the table."""
        value = "–" if self.value is None else f"{self.value:.3g}" if self.value < 100 else f"{self.value:.0f}"
        verdict = {None: "", True: "kept", False: "NOT kept"}[self.kept]
        budget = "" if self.budget is None else f"< {self.budget:g} {self.unit}"
        return [self.name, f"{value} {self.unit}", budget, verdict, self.note]


def add_parser(subparsers: Any) -> None:
    """Adds `ui` to bench's subparsers."""
    p: argparse.ArgumentParser = subparsers.add_parser("ui", help="what the screen costs", description=__doc__)
    p.add_argument("--tokens", metavar="N", type=whole(100), default=2000, help="of each scripted text (default: 2000)")
    p.add_argument("--rate", metavar="X", type=above_zero, default=200.0, help="tokens per second (default: 200)")
    p.add_argument("--idle", metavar="S", type=above_zero, default=10.0, help="seconds of idling (default: 10)")
    p.add_argument("--engine", action="store_true", help="also a real model: the demo model, or -m")
    p.add_argument("-m", "--model", metavar="GGUF", type=Path, help="for --engine (default: the demo model)")
    p.add_argument("--engine-tokens", metavar="N", type=whole(20), default=300, help="of each reply (default: 300)")
    p.add_argument("--pairs", metavar="N", type=whole(1), default=9, help="of replies, for --engine (default: 9)")
    p.add_argument("--gpu", metavar="N", type=int, help="for --engine; -1: the CPU")
    p.add_argument("--threads", metavar="N", type=whole(1), help="for --engine (default: one core is left free)")
    p.add_argument("--json", action="store_true", help="print JSON instead of a table")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 when a budget is not kept. Raises UserError."""
    where = {
        "machine": machine(f"pseudo-terminal, {SIZE[0]} x {SIZE[1]}"),
        "load": f"{os.getloadavg()[0]:.1f}",
        "python": sys.version.split()[0],
        "textual": importlib.metadata.version("textual"),
    }
    if not args.json:
        print(
            f"{where['machine']}; load before {where['load']}; Python {where['python']}, Textual {where['textual']}\n"
        )
    rows: list[Row] = []
    for part in (first_frame, prose, code, long_chat, idle, engine):
        for row in part(args):
            rows.append(row)
            if not args.json:
                print(f"  {row.name}: {row.cells()[1]}", file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps({"ran_on": where, "rows": [asdict(r) | {"kept": r.kept} for r in rows]}, indent=2))
    else:
        print(table(["what", "measured", "budget", "", "note"], [row.cells() for row in rows]))
    return 0 if all(row.kept is not False for row in rows) else 1


def first_frame(args: argparse.Namespace) -> Iterator[Row]:
    """From the start of the process to the prompt on the screen."""
    times = []
    for _ in range(5):
        with _folder() as folder, Terminal(Spec(folder, 0, "prose"), SIZE) as terminal:
            times.append(terminal.wait_for(PROMPT) - terminal.begun)
            terminal.wait_for(READY)
            terminal.quit()
    yield Row("first frame, without the engine", statistics.median(times), "s", 0.6, "median of 5")


def prose(args: argparse.Namespace) -> Iterator[Row]:
    """Lag and echo while prose is written."""
    yield from _stream(args, "prose", (25.0, 100.0))


def code(args: argparse.Namespace) -> Iterator[Row]:
    """Lag and echo while code is written."""
    yield from _stream(args, "code", (50.0, 200.0))


def _stream(args: argparse.Namespace, kind: str, budgets: tuple[float, float]) -> Iterator[Row]:
    with _folder() as folder:
        spec = Spec(folder, 0, kind, args.tokens, args.rate)
        with Terminal(spec, SIZE) as terminal:
            terminal.wait_for(READY)
            echoes = _type_while_writing(terminal)
            report = terminal.quit()
    what = f"{args.tokens} tokens of {kind}, {args.rate:g}/s"
    yield from _lag(what, report, budgets)
    yield from _echo(what, echoes)
    yield _taken(what, report, "keys are typed meanwhile")


def _type_while_writing(terminal: Terminal) -> list[float]:
    """Sends a message and types until its reply has ended; the time from each key to its letter on the screen."""
    _send(terminal)
    waiting: dict[bytes, float] = {}
    echoes: list[float] = []
    done = False

    def seen(now: float, drawn: bytes) -> bool:
        nonlocal done
        for letter in [letter for letter in waiting if letter in drawn]:
            echoes.append(now - waiting.pop(letter))
        done = done or READY.encode() in drawn
        return done

    for letter in itertools.cycle(LETTERS):
        if letter == LETTERS[0]:
            terminal.type("\x15")  # ctrl+u: the letters are used again
        waiting[letter.encode()] = terminal.type(letter)
        if terminal.read(KEY_SECONDS, seen):
            break
        if terminal.ended:
            raise UserError("The measured program ended while it wrote.")
    terminal.read(1.0, lambda now, drawn: seen(now, drawn) and not waiting)
    return echoes


def _send(terminal: Terminal) -> None:
    terminal.type(ASKED)
    terminal.read(TYPING_SECONDS)
    terminal.type("\r")
    terminal.wait_for("generating")


def _lag(what: str, report: dict[str, Any], budgets: tuple[float | None, float | None]) -> Iterator[Row]:
    lags = sorted(1e3 * lag for now, lag in report["lags"] if report["started"] <= now <= report["ended"])
    if not lags:
        raise AssertionError("the probe ran")
    yield Row(f"lag p50, {what}", _quantile(lags, 0.5), "ms")
    yield Row(f"lag p95, {what}", _quantile(lags, 0.95), "ms", budgets[0])
    yield Row(f"lag max, {what}", lags[-1], "ms", budgets[1])


def _share(report: dict[str, Any]) -> float:
    seconds: float = report["ended"] - report["started"]
    return 100 * float(report["screen_seconds"]) / seconds


def _taken(what: str, report: dict[str, Any], note: str) -> Row:
    return Row(f"processor time of the screen, {what}", _share(report), "% of a core", note=note)


def _echo(what: str, echoes: Sequence[float]) -> Iterator[Row]:
    times = sorted(1e3 * seconds for seconds in echoes)
    note = f"{len(times)} keys"
    yield Row(f"key to echo, median, {what}", _quantile(times, 0.5), "ms", 20.0, note)
    yield Row(f"key to echo, p99, {what}", _quantile(times, 0.99), "ms", 50.0, note)


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def long_chat(args: argparse.Namespace) -> Iterator[Row]:
    """Opens a chat of 300 messages from the list, and resizes."""
    with _folder() as folder:
        _write_long_chat(Path(folder) / "chats.sqlite3")
        with Terminal(Spec(folder, 0, "prose"), SIZE) as terminal:
            terminal.wait_for(READY)
            terminal.type("\x1bOQ")  # f2
            terminal.wait_for("Long chat")
            terminal.read(1.0)
            opened = terminal.type("\r")
            shown = terminal.wait_for(END)
            terminal.read(1.0)
            resizes = []
            for size in ((100, 32), (150, 45), (90, 30), SIZE):
                changed = terminal.resize(size)
                drawn = terminal.last_time(END, 2.0)
                resizes.append(None if drawn is None else drawn - changed)
            report = terminal.quit()
    lags = [1e3 * lag for now, lag in report["lags"] if opened <= now <= shown + 0.5]
    yield Row(f"open a chat of {MESSAGES} messages", shown - opened, "s", 0.5, "from the key to its end on the screen")
    yield Row("lag max meanwhile", max(lags), "ms", 100.0)
    known = [seconds for seconds in resizes if seconds is not None]
    yield Row(f"resize in a chat of {MESSAGES} messages", max(known) if known else None, "s", 0.4, "slowest of 4")


def _write_long_chat(path: Path) -> None:
    from ..sessions.rows import Status
    from ..sessions.store import Store
    from .ui_source import code, prose

    with Store(path) as store:
        session = store.create_session(title="Long chat")
        for number in range(MESSAGES // 2):
            user = store.add_user_message(session, f"Question {number}: {prose(10, number)}")
            last = number == MESSAGES // 2 - 1
            text = prose(120, number) + (code(80, number) if number % 3 == 0 else "") + (f"\n{END}" if last else "")
            store.finish_reply(store.begin_reply(session, user, model="scripted source"), Status.DONE, text)
        store.flush()


def idle(args: argparse.Namespace) -> Iterator[Row]:
    """Processor time while nothing happens and the panel is shown."""
    with _folder() as folder, Terminal(Spec(folder, 0, "prose", probe=False), SIZE) as terminal:
        terminal.wait_for(READY)
        share = _idle_share(terminal, args.idle)
        terminal.quit()
    yield Row("idle with the panel", share, "% of a core", 1.5, f"{args.idle:g} s")


def _idle_share(terminal: Terminal, seconds: float) -> float:
    terminal.read(2.0)
    before, begun = terminal.cpu_seconds(), time.monotonic()
    terminal.read(seconds)
    return 100 * (terminal.cpu_seconds() - before) / (time.monotonic() - begun)


def engine(args: argparse.Namespace) -> Iterator[Row]:
    """A real model writes: lag and echo, and its speed with the screen and without."""
    if not args.engine:
        return
    threads = args.threads or max(1, len(os.sched_getaffinity(0)) - 1)
    model = str(args.model) if args.model else None
    spec = Spec("", 0, "", args.engine_tokens, 0.0, model, threads, args.gpu)
    with _folder() as folder, Terminal(replace(spec, folder=folder, probe=False), SIZE) as terminal:
        terminal.wait_for(READY)
        share = _idle_share(terminal, args.idle)
        terminal.quit()
    yield Row("idle with the panel and a model", share, "% of a core", 1.5, f"{args.idle:g} s")
    with _folder() as folder, Terminal(replace(spec, folder=folder), SIZE) as terminal:
        terminal.wait_for(READY)
        echoes = _type_while_writing(terminal)
        report = terminal.quit()
    what = f"{report['reply_tokens']} tokens of a model, {report['decode_rate']:.0f}/s"
    yield from _lag(what, report, (25.0, None))
    yield from _echo(what, echoes)
    yield _taken(what, report, "keys are typed meanwhile")
    tokens = {report["reply_tokens"]}
    rates: dict[bool, list[float]] = {True: [], False: []}
    shares = []
    for pair in range(args.pairs):
        for screen in (True, False) if pair % 2 else (False, True):  # what drifts hits both alike
            report = _reply_with_screen(spec) if screen else _reply_without(spec)
            rates[screen].append(report["decode_rate"])
            tokens.add(report["reply_tokens"])
            if screen:
                shares.append(_share(report))
    if len(tokens) > 1 or not 0 < max(tokens) <= args.engine_tokens:
        raise AssertionError(f"replies of {sorted(tokens)} tokens; the same one of {args.engine_tokens} was asked for")
    note = f"median of {args.pairs} replies, nothing is typed"
    yield Row("processor time of the screen beside a model", statistics.median(shares), "% of a core", note=note)
    costs = sorted(100 * (1 - one / other) for one, other in zip(rates[True], rates[False], strict=True))
    one, other = (statistics.median(rates[screen]) for screen in (True, False))
    spread = f"{costs[len(costs) // 4]:.1f} to {costs[-1 - len(costs) // 4]:.1f}"
    both = f"{one:.1f} against {other:.1f} tok/s without drafts, {threads} threads"
    note = f"median of {args.pairs} pairs, the middle half {spread}: {both}"
    yield Row("decode speed lost to the screen", statistics.median(costs), "%", 2.0, note)


def _reply_with_screen(spec: Spec) -> dict[str, Any]:
    with _folder() as folder, Terminal(replace(spec, folder=folder, probe=False), SIZE) as terminal:
        terminal.wait_for(READY)
        _send(terminal)
        terminal.wait_for(READY)
        return terminal.quit()


def _reply_without(spec: Spec) -> dict[str, Any]:
    with _folder() as folder, Terminal(replace(spec, folder=folder, asked=ASKED), SIZE) as terminal:
        return terminal.report()


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    """A folder for one run's store and settings."""
    with tempfile.TemporaryDirectory(prefix="strata-tui-bench-") as folder:
        yield folder
