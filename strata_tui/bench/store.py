"""`strata-tui bench store`: searching and opening chats in a store of many messages. No model, no GPU.

The store is made in a temporary folder from random words whose frequencies fall like those of a language, so
that a common word is in most messages. Each query is asked several times; the time is that of `Store.search`,
snippets and titles included, with the index up to date.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .ranges import whole
from .report import Spread, amount, machine, table

if TYPE_CHECKING:
    from ..sessions.portable import PortableChat
    from ..sessions.store import Store

_WORDS = 20_000  # different ones
_LENGTHS = (20, 50, 150, 400)  # of messages, in words
_PER_CHAT = 50  # messages
_HAN = range(0x4E00, 0x4E00 + 2000)


def add_parser(subparsers: Any) -> None:
    """Adds `store` to bench's subparsers."""
    p: argparse.ArgumentParser = subparsers.add_parser("store", help="speed of search", description=__doc__)
    p.add_argument("--messages", metavar="N", type=whole(_PER_CHAT), default=10_000, help="default: 10000")
    p.add_argument("--rounds", metavar="N", type=whole(1), default=15, help="times each query is asked (default: 15)")
    p.add_argument("--json", metavar="FILE", type=Path)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 when a query did not find what it must. Raises UserError."""
    from ..sessions.store import Store

    made = _Texts(random.Random(1))
    with (
        tempfile.TemporaryDirectory(prefix="strata-tui-bench-") as folder,
        Store(Path(folder) / "chats.sqlite3") as store,
    ):
        chats = [made.chat(n) for n in range(args.messages // _PER_CHAT)]
        written, keys = _timed(lambda: store.add_chats(chats).result())
        indexed, _ = _timed(store.index)
        files = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
        text = sum(len(m.text.encode()) for chat in chats for m in chat.messages)
        count = sum(len(chat.messages) for chat in chats)
        print(machine("no device"))
        print(f"{count} messages in {len(chats)} chats, {amount(text)} of text, {amount(files)} on disk")
        print(f"written in {written:.0f} ms, indexed in {indexed:.0f} ms\n")
        found, good = _queries(store, made, args.rounds)
        opened = [_timed(partial(store.branch, key))[0] for key in keys[: args.rounds]]
        listed = [_timed(store.list_sessions)[0] for _ in range(args.rounds)]
    rows = [[name, str(hits), str(Spread.of(times))] for name, hits, times in found]
    rows += [["(the list of chats)", str(len(chats)), str(Spread.of(listed))]]
    rows += [["(a chat's branch)", str(_PER_CHAT), str(Spread.of(opened))]]
    print(table(["query", "results", "ms, median (low to high)"], rows))
    slowest = max(Spread.of(times).median for _, _, times in found)
    print(f"\nslowest query, median: {slowest:.1f} ms")
    if args.json:
        report = {"machine": machine("no device"), "messages": count, "write_ms": written, "index_ms": indexed}
        queries = {name: {"results": hits, "ms": times} for name, hits, times in found}
        _write(args.json, report | {"queries": queries, "list_ms": listed, "branch_ms": opened})
    if not good:
        print("a query did not find what it must")
    return 0 if good else 1


def _queries(store: Store, made: _Texts, rounds: int) -> tuple[list[tuple[str, int, list[float]]], bool]:
    from ..sessions.search import MOST_HITS

    common, second, middling, rare = (made.words[n] for n in (0, 1, 300, 15_000))
    asked = [
        ("a common word", common),
        ("the start of many words", common[:1]),
        ("a middling word", middling),
        ("a rare word", rare),
        ("two common words", f"{common} {second}"),
        ("two common words together", f'"{common} {second}"'),
        ("five words, three of them common", f"{common} {second} {middling} {made.words[2]} {made.words[40]}"),
        ("Chinese, two characters", made.han),
        ("Chinese, one character", made.han[:1]),
        ("one message", made.needle),
        ("nothing", "thisisnowhere"),
    ]
    times: dict[str, list[float]] = {name: [] for name, _ in asked}
    hits: dict[str, int] = {}
    for _ in range(rounds):  # interleaved, so that a slow moment is shared
        for name, words in asked:
            milliseconds, found = _timed(partial(store.search, words))
            times[name].append(milliseconds)
            hits[name] = len(found)
    good = (hits["one message"], hits["nothing"], hits["a common word"]) == (1, 0, MOST_HITS)
    return [(name, hits[name], times[name]) for name, _ in asked], good


class _Texts:
    """Random texts, the same on every machine."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        letters = "etaoinshrdlcumwfgypbvkjxqz"
        words: dict[str, None] = {}
        while len(words) < _WORDS:
            words["".join(chance.choices(letters, k=chance.randint(2, 10)))] = None
        self.words = list(words)
        self._weights = list(itertools.accumulate(1 / (n + 1) for n in range(_WORDS)))
        self.han = chr(_HAN[7]) + chr(_HAN[11])
        self.needle = "needle7in9haystack"

    def chat(self, number: int) -> PortableChat:
        """A chat of _PER_CHAT messages, every tenth with some Chinese; the first one has the needle."""
        from ..sessions.portable import PortableChat, PortableMessage
        from ..sessions.rows import Role

        messages = []
        for n in range(_PER_CHAT):
            text = " ".join(self._some(self.words, self._weights, self._chance.choice(_LENGTHS)))
            if n % 10 == 0:
                text += " " + "".join(chr(_HAN[int(2000 * self._chance.random() ** 3)]) for _ in range(100)) + self.han
            if number == n == 0:
                text += f" {self.needle}"
            when = 1e9 + number * 1e5 + n * 60
            messages.append(PortableMessage(n - 1 if n else None, (Role.USER, Role.ASSISTANT)[n % 2], text, when, when))
        title = " ".join(self._some(self.words, self._weights, 5))
        return PortableChat(title, 1e9 + number * 1e5, 1e9 + number * 1e5 + 1e4, tuple(messages), _PER_CHAT - 1)

    def _some(self, words: Sequence[str], weights: Sequence[float], count: int) -> list[str]:
        return self._chance.choices(words, cum_weights=weights, k=count)


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds, and what came of it."""
    started = time.perf_counter()
    result = work()
    return 1e3 * (time.perf_counter() - started), result


def _write(path: Path, report: object) -> None:
    try:
        path.write_text(json.dumps(report, indent=1))
    except OSError as error:
        raise UserError(f"The report cannot be written to {path}: {error.strerror}.") from error
