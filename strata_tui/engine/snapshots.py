"""KV snapshots: what each chat's sequence was, so that coming back to a chat does not read it again.

Saved when a prompt of another chat is about to overwrite it, when nothing has been asked for a moment after a reply,
and when the model is closed; never between a prompt and its first token where there was time before. Used when a
turn begins with more of a snapshot's tokens than the context holds.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from logging import Logger

import numpy as np

from .checkpoints import Checkpoint
from .llama import Context
from .llama_state import State
from .prefix import Prefix, Reuse
from .snapshot_disk import Disk
from .snapshot_file import KvSnapshot, Tokens
from .snapshot_ram import Ram
from .speculate import Speculation
from .telemetry import ram

IDLE = 1.0  # seconds without a command after which a chat is saved, so that a person who answers at once never waits
LEAST = 32  # tokens: fewer are as quickly read as copied
WORTH = 16  # tokens that a snapshot must hold beyond the context to be copied back
SHARE = 8  # and at least one in so many of its tokens must be of use
APART = 64  # tokens of a prompt from which on a checkpoint near its end is worth a pass of its own
PASSING = 4096  # tokens between checkpoints while a long prompt is read
SPARE = 1 << 30  # bytes of RAM that stay available beside a snapshot that is only on its way to the disk
CLOSING = 4.0  # most seconds that writing takes when a model is closed
_NONE: State = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """A snapshot of which `kept` tokens can be used. `snapshot` None: it is in the chat's file."""

    kept: int
    source: str
    chat: str
    held: int
    snapshot: KvSnapshot | None


class Snapshots:
    """Belongs to the thread that decodes; `nbytes` may be asked from any."""

    def __init__(
        self, context: Context, prefix: Prefix, speculation: Speculation, ram_bytes: int, disk: Disk | None, log: Logger
    ) -> None:
        """`ram_bytes`: budget of those in RAM, 0 for none there. `disk` None: none there."""
        self._context, self._prefix, self._speculation, self._log = context, prefix, speculation, log
        self._ram, self._disk = Ram(ram_bytes), disk
        self._due: float | None = None

    def nbytes(self) -> tuple[int, int]:
        """(bytes in RAM, bytes on the disk); the first with those that wait to be written, and checkpoints."""
        queued, files = (self._disk.queued, self._disk.nbytes) if self._disk else (0, 0)
        return self._ram.nbytes + queued + self._prefix.checkpoints.nbytes, files

    # A turn

    def last(self, chat: str) -> Sequence[int]:
        """The chat's last prompt and the tokens of the reply to it; of another chat where this one's are not known."""
        if not chat or chat == self._prefix.owner:
            return self._prefix.last
        held = next((s for s in self._in_ram() if s.chat == chat), None)
        if held is not None:
            return [int(t) for t in held.last]
        head = next((h for h in self._disk.heads() if h.chat == chat), None) if self._disk else None
        return [int(t) for t in head.last] if head is not None else self._prefix.last

    def prepare(self, prompt: Sequence[int], chat: str) -> Reuse:
        """Makes the memory hold as much of `prompt` as it or a snapshot can give. `chat` "": none is restored."""
        prefix = self._prefix
        self._due = None
        here = prefix.reusable(prompt)
        found, known = self._find(prompt, here) if chat else (None, 0)
        if prefix.owner != chat and len(prefix.tokens) - here >= LEAST:
            self.save(leaving=True)
        source = self._restore(found) if found is not None and found.snapshot is not None else ""
        prefix.owner = chat
        reuse = prefix.prepare(prompt)
        self._speculation.cut(reuse.kept)
        if chat:
            prefix.checkpoint()
        return replace(reuse, known=max(known, reuse.known), source=source if reuse.kept else "")

    def mark(self, kept: int, total: int, opening: int) -> int:
        """Where reading a prompt of `total` tokens must pause so that another reply to it can begin from there.

        `opening`: tokens at its end that the next turn's prompt may leave out. 0: no need to pause.
        """
        prefix = self._prefix
        at = total - max(1, opening)
        wanted = prefix.owner and prefix.rigid and prefix.checkpoints.wanted
        return at if wanted and at - kept >= APART else 0

    def passed(self, mark: int) -> None:
        """A part of the prompt was read."""
        prefix = self._prefix
        held = len(prefix.tokens)
        if held == mark:
            prefix.checkpoint()
        elif prefix.owner and prefix.running and held - prefix.checkpoints.last >= PASSING:
            prefix.checkpoint(passing=True)

    # Between turns

    def replied(self) -> None:
        """A reply has been reported as done."""
        if self._prefix.owner:
            self._prefix.checkpoint(early=True)
            self._due = time.monotonic() + IDLE

    def wait(self) -> float | None:
        """Seconds without a command until `save` is due; None: nothing is to be saved."""
        return None if self._due is None else max(0.0, self._due - time.monotonic())

    def save(self, *, leaving: bool = False) -> None:
        """Keeps the chat's sequence as it is now; `leaving`: it is about to be lost."""
        self._due = None
        prefix = self._prefix
        chat, held = prefix.owner, len(prefix.tokens)
        if not chat or held < LEAST or self._context.pos_max() != held - 1:
            return
        tokens: Tokens = np.array(prefix.tokens, np.int32)
        there = self._ram.get(chat)
        if there is not None and np.array_equal(there.tokens, tokens):
            self._ram.touch(chat)
            return
        points = prefix.checkpoints.before(held)
        nbytes = self._context.state_size() + sum(c.data.nbytes for c in points)
        if not self._has_room(chat, nbytes, leaving):
            return
        begun = time.perf_counter()
        snapshot = self._copied(chat, tokens, points)
        if snapshot is None:
            self._log.warning("snapshot: chat %s could not be copied", chat)
            return
        if snapshot.nbytes <= self._ram.budget:
            self._spill(self._ram.put(snapshot))
        elif self._disk is not None:
            self._disk.put(snapshot)
        took = (time.perf_counter() - begun) * 1e3
        self._log.info("snapshot: chat %s, %d tokens, %d bytes, %.1f ms", chat, held, snapshot.nbytes, took)

    def forget(self, chats: Collection[str]) -> None:
        """Some chats are gone for good."""
        self._ram.drop(chats)
        if self._disk is not None:
            self._disk.forget(chats)
        if self._prefix.owner in chats:
            self._prefix.owner = ""
            self._due = None

    def distrust(self) -> None:
        """What was computed since the model was opened may be wrong."""
        self._ram.clear()
        if self._disk is not None:
            self._disk.distrust()

    def close(self) -> None:
        """Before the contexts are closed: what is not on the disk yet is written, the last used first."""
        until = time.monotonic() + CLOSING
        try:
            self.save(leaving=True)
            if self._disk is not None:
                for snapshot in self._ram.all():
                    if self._disk.fits(snapshot.nbytes) and not self._disk.holds(snapshot):
                        self._disk.put(snapshot)
        finally:
            if self._disk is not None:
                self._disk.close(until)
            self._ram.clear()

    # Inside

    def _in_ram(self) -> Iterator[KvSnapshot]:
        yield from self._ram.all()
        if self._disk is not None:
            yield from self._disk.waiting()

    def _find(self, prompt: Sequence[int], here: int) -> tuple[_Found | None, int]:
        """The best snapshot, checked, where one beats the context's `here` tokens; how much of the prompt is known."""
        wanted: Tokens = np.array(prompt[:-1], np.int32)
        found: list[_Found] = []
        known = 0

        def look(tokens: Tokens, positions: Sequence[int], source: str, chat: str, it: KvSnapshot | None) -> None:
            nonlocal known
            shared = _common(tokens, wanted)
            known = max(known, shared)
            kept = self._prefix.restorable(len(tokens), shared, positions)
            if kept >= here + WORTH and kept * SHARE >= len(tokens):
                found.append(_Found(kept, source, chat, len(tokens), it))

        for s in self._in_ram():
            look(s.tokens, [c.position for c in s.checkpoints], "ram", s.chat, s)
        for head in self._disk.heads() if self._disk is not None else ():
            look(head.tokens, head.positions, "disk", head.chat, None)
        for best in sorted(found, key=lambda f: (-f.kept, f.source == "disk", f.held)):
            if best.snapshot is not None:
                return best, known
            assert self._disk is not None
            read = self._disk.read(best.chat)
            if read is not None and len(read.tokens) >= best.kept and _common(read.tokens, wanted) >= best.kept:
                return replace(best, snapshot=read), known
        return None, known

    def _restore(self, found: _Found) -> str:
        """Puts a snapshot into the context in place of what is there; where it came from, "" if it was refused."""
        snapshot = found.snapshot
        assert snapshot is not None
        begun = time.perf_counter()
        self._context.clear()
        done = self._context.set_state(snapshot.state)
        done = self._prefix.adopt(snapshot.tokens.tolist(), snapshot.checkpoints, snapshot.chat) and done
        if not done:
            self._log.warning("snapshot: chat %s: llama.cpp refused it; it is removed", snapshot.chat)
            self._prefix.clear()
            self._speculation.cut(0)
            self.forget([snapshot.chat])
            return ""
        drafting = (snapshot.heads, snapshot.carry.tobytes()) if snapshot.heads.size else None
        self._speculation.resume(len(snapshot.tokens), drafting)
        self._ram.touch(snapshot.chat)
        took = (time.perf_counter() - begun) * 1e3
        self._log.info(
            "snapshot: chat %s restored from %s, %d of %d tokens fit, %.1f ms",
            snapshot.chat,
            found.source,
            found.kept,
            len(snapshot.tokens),
            took,
        )
        return found.source

    def _copied(self, chat: str, tokens: Tokens, points: tuple[Checkpoint, ...]) -> KvSnapshot | None:
        heads, carry = _NONE, _NONE
        try:
            if (drafting := self._speculation.settled(len(tokens))) is not None:
                heads, carry = drafting[0], np.frombuffer(drafting[1], np.uint8)
            state = self._context.state()
        except MemoryError:
            return None
        if state is None:
            return None
        return KvSnapshot(chat, tokens, np.array(self._prefix.last, np.int32), state, heads, carry, points)

    def _has_room(self, chat: str, nbytes: int, leaving: bool) -> bool:
        """Whether a copy of so many bytes may be made; older ones give way."""
        available = ram().available
        fits = nbytes <= self._ram.budget
        if fits:
            self._ram.drop([chat])  # it is out of date
            self._spill(self._ram.make_room(nbytes))
        elif not leaving or self._disk is None or not self._disk.fits(nbytes):
            return False
        if available is not None and available < nbytes + (0 if fits else SPARE):
            self._log.warning("snapshot: none of chat %s: %d bytes of RAM are too many now", chat, nbytes)
            return False
        return True

    def _spill(self, snapshots: Sequence[KvSnapshot]) -> None:
        """Has those that left the RAM written, as long as not too many wait already."""
        for snapshot in snapshots:
            if self._disk is None or not self._disk.fits(snapshot.nbytes) or self._disk.holds(snapshot):
                continue
            queued = self._disk.queued
            if queued and queued + snapshot.nbytes > self._ram.budget:
                self._log.warning("snapshot: chat %s is dropped: the disk is too slow", snapshot.chat)
                continue
            self._disk.put(snapshot)


def _common(a: Tokens, b: Tokens) -> int:
    """Length of the longest common prefix."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    return int(differs.argmax()) if differs.any() else n
