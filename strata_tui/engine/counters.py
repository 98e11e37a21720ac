"""The engine's counters as one immutable snapshot. Every field is defined in engine_ext/counters.h.

`None` means *unknown* and is shown as a dash; it is never replaced by 0.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class PhaseCounters:
    """Counters of one phase (prompt or decode), or a difference of two such snapshots."""

    picks: int = 0  # routed picks: one per token, layer and used expert
    hits: int = 0  # picks whose expert was resident when its layer ran
    misses: int = 0  # picks - hits
    loads: int = 0  # blobs brought to the device
    loads_mirror: int = 0  # ... of these, copied straight from the mirror
    loads_staged: int = 0  # ... of these, put together in a stage buffer from the file
    evictions: int = 0  # residents that lost their slot
    bytes_copied: int = 0  # bytes queued to the device
    streamed: int = 0  # blobs that passed through the ring, once for each batch
    moved: int = 0  # ... of these, copied from their own slots
    rounds: int = 0  # graph computations
    cuts: int = 0  # places where a graph was cut to read expert ids
    split_passes: int = 0  # extra passes because a batch needed more experts than slots
    wait_ns: int = 0  # host time waiting for stage buffers and their copies
    bytes_filled: int = 0  # bytes read from the file into stage buffers
    bytes_direct: int = 0  # ... of these, past the page cache
    asks: int = 0  # reads and samples that were asked whether the page cache holds them
    asks_cached: int = 0  # ... of these, those that it held
    ask_ns: int = 0  # time of samples, and of asking where the answer was no

    def __sub__(self, other: PhaseCounters) -> PhaseCounters:
        return PhaseCounters(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))

    def __add__(self, other: PhaseCounters) -> PhaseCounters:
        return PhaseCounters(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def hit_rate(self) -> float | None:
        """Hits over picks, or None when nothing was picked."""
        return self.hits / self.picks if self.picks else None


@dataclass(frozen=True, slots=True)
class DraftCounters:
    """Speculative decoding: totals since the model was opened, or a difference of two such snapshots.

    `offered` and `accepted` count by position: index 0 is the first draft of a window. A draft behind one that was
    rejected was offered, too. Times in nanoseconds.
    """

    windows: int = 0  # passes of the target while decoding, those without drafts included
    drafted_windows: int = 0  # ... of these, those with drafts
    tokens: int = 0  # that the windows gave
    offered: tuple[int, ...] = (0, 0, 0, 0)
    accepted: tuple[int, ...] = (0, 0, 0, 0)
    draft_ns: int = 0  # spent on drafting
    window_ns: int = 0  # spent on windows with drafts
    plain_ns: int = 0  # spent on windows without

    def __sub__(self, other: DraftCounters) -> DraftCounters:
        return self._each(operator.sub, other)

    def __add__(self, other: DraftCounters) -> DraftCounters:
        return self._each(operator.add, other)

    def _each(self, do: Callable[[int, int], int], other: DraftCounters) -> DraftCounters:
        def one(a: Any, b: Any) -> Any:
            return tuple(map(do, a, b)) if isinstance(a, tuple) else do(a, b)

        return DraftCounters(**{f.name: one(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})

    @property
    def acceptance(self) -> float | None:
        """Accepted over offered drafts, or None without drafts."""
        return sum(self.accepted) / sum(self.offered) if sum(self.offered) else None

    @property
    def tokens_per_window(self) -> float | None:
        return self.tokens / self.windows if self.windows else None

    @property
    def window_cost(self) -> float | None:
        """Mean time of a window with drafts, and of drafting them, over that of a plain one; None if one is unknown."""
        plain = self.windows - self.drafted_windows
        if not plain or not self.drafted_windows or not self.plain_ns:
            return None
        return ((self.window_ns + self.draft_ns) / self.drafted_windows) / (self.plain_ns / plain)


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals since the model was opened. `swaps`: homes exchanged by the adaptive tier; None without experts."""

    prompt: PhaseCounters = PhaseCounters()
    decode: PhaseCounters = PhaseCounters()
    swaps: int | None = None

    @property
    def total(self) -> PhaseCounters:
        return self.prompt + self.decode

    def __add__(self, other: Counters) -> Counters:
        swaps = None if self.swaps is None or other.swaps is None else self.swaps + other.swaps
        return Counters(self.prompt + other.prompt, self.decode + other.decode, swaps)

    def __sub__(self, other: Counters) -> Counters:
        swaps = None if self.swaps is None or other.swaps is None else self.swaps - other.swaps
        return Counters(self.prompt - other.prompt, self.decode - other.decode, swaps)


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Where the memory is, in bytes. VRAM fields are None where there is no GPU (or no NVML)."""

    device: str = ""  # "NVIDIA H200 (CUDA0)" or "CPU"
    on_gpu: bool = False
    vram_used: int | None = None
    vram_total: int | None = None
    trunk: int | None = None  # weights other than experts
    kv: int | None = None
    arena: int = 0  # slots, in VRAM on a GPU and in RAM otherwise
    slots_used: int = 0
    slots_total: int = 0
    experts_total: int = 0
    pinned: int = 0  # page-locked bytes: stage pool and mirror
    pageable: int = 0  # stage pool bytes that are not page-locked
    refused: int = 0  # bytes the driver refused to page-lock
    mirror: int = 0
    snapshots_ram: int = 0  # KV snapshots and checkpoints in RAM
    snapshots_disk: int = 0  # KV snapshots on the disk, of all models
    ram_available: int | None = None
    process_rss: int | None = None
    reserve: int | None = None  # what the memory plan leaves free, in VRAM on a GPU and in RAM otherwise

    @property
    def other(self) -> int | None:
        """VRAM in use for all else: compute buffers, a ring of its own, other programs; None where unknown."""
        if self.vram_used is None or self.trunk is None or self.kv is None:
            return None
        return max(0, self.vram_used - self.trunk - self.kv - self.arena)

    @property
    def held(self) -> int:
        """Bytes that the open model takes where the memory plan counts them: what it gives back when it is closed.

        A trunk in RAM is page cache, which counts as available anyway.
        """
        trunk = self.trunk if self.on_gpu else 0
        return sum(part or 0 for part in (trunk, self.kv, self.arena))


@dataclass(frozen=True, slots=True)
class ReplyStats:
    """Numbers of one reply; stored with it and exported. Times in seconds."""

    prompt_tokens: int = 0  # tokens in the prompt
    reused_tokens: int = 0  # ... of these, not read for this reply: they were in the context, or in a KV snapshot
    reused_ram: int | None = None  # ... of these, from a snapshot in RAM
    reused_disk: int | None = None  # ... and from one on the disk
    read_again: int | None = None  # of those that were read, tokens of earlier turns, or known from earlier reading
    reply_tokens: int = 0
    prompt_seconds: float | None = None
    first_token_seconds: float | None = None
    decode_seconds: float | None = None
    counters: Counters = Counters()
    context_used: int = 0
    context_total: int = 0
    model: str = ""
    drafts: DraftCounters | None = None  # None: of a reply from before there were any
    gate: str = ""  # what the switch for drafts said at the end: its state and the reason
    thinking_tokens: int = 0  # of reply_tokens, those written before the reply's own text
    thinking_seconds: float | None = None  # from the first token to the last of these
    quantization: str = ""  # the model's
    layers: tuple[tuple[int, int], ...] = ()  # picks and hits while decoding, of each layer with experts
    each: tuple[dict[str, object], ...] = ()  # of a reply that was gone on with: the numbers of each part

    @property
    def prompt_rate(self) -> float | None:
        """Prompt tokens read (not reused) per second."""
        n = self.read_tokens
        return n / self.prompt_seconds if self.prompt_seconds and n > 0 else None

    @property
    def read_tokens(self) -> int:
        """Tokens of the prompt that were not in the KV cache and had to be read."""
        return self.prompt_tokens - self.reused_tokens

    @property
    def decode_rate(self) -> float | None:
        """Reply tokens after the first of each part, per second."""
        n = self.reply_tokens - max(1, len(self.each))
        return n / self.decode_seconds if self.decode_seconds and n > 0 else None

    def gone_on(self, rest: ReplyStats) -> ReplyStats:
        """The numbers of a reply with these, that was gone on with: sums of both parts.

        The prompt and the time to the first token are the first part's, the context is the last one's.
        """
        if not rest.reply_tokens:
            return self
        if not self.reply_tokens:
            return rest
        return replace(
            self,
            reply_tokens=self.reply_tokens + rest.reply_tokens,
            decode_seconds=_sum(self.decode_seconds, rest.decode_seconds),
            counters=self.counters + rest.counters,
            context_used=rest.context_used,
            context_total=rest.context_total,
            drafts=self.drafts and rest.drafts and self.drafts + rest.drafts,
            gate=rest.gate,
            thinking_tokens=self.thinking_tokens + rest.thinking_tokens,
            thinking_seconds=_sum(self.thinking_seconds, rest.thinking_seconds),
            layers=_layers(self.layers, rest.layers),
            each=(*(self.each or (self._alone(),)), rest._alone()),
        )

    def _alone(self) -> dict[str, object]:
        kept: dict[str, object] = json.loads(json.dumps(replace(self, each=()).to_dict()))  # as it is when stored
        del kept["each"]
        return kept

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values, for storing and exporting; the inverse is `from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, object]) -> ReplyStats:
        """Builds from `to_dict`'s result; unknown keys are ignored, missing ones take their default."""
        known = {f.name for f in fields(cls)}
        kept = {k: v for k, v in data.items() if k in known}
        raw = kept.get("counters")
        if isinstance(raw, dict):
            phase = {f.name for f in fields(PhaseCounters)}

            def one(name: str) -> PhaseCounters:
                part = raw.get(name) or {}
                return PhaseCounters(**{k: v for k, v in part.items() if k in phase})

            kept["counters"] = Counters(one("prompt"), one("decode"), raw.get("swaps"))
        drafts = kept.get("drafts")
        if isinstance(drafts, dict):
            names = {f.name for f in fields(DraftCounters)}
            given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in drafts.items() if k in names}
            kept["drafts"] = DraftCounters(**given)
        layers = kept.get("layers")
        if isinstance(layers, list):
            kept["layers"] = tuple((picks, hits) for picks, hits in layers)
        each = kept.get("each")
        if isinstance(each, list | tuple):
            kept["each"] = tuple(each)
        return cls(**kept)  # type: ignore[arg-type]


def _layers(one: tuple[tuple[int, int], ...], other: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """The sums layer by layer; nothing where one part's are unknown, or of another model."""
    if len(one) != len(other):
        return ()
    return tuple((a + c, b + d) for (a, b), (c, d) in zip(one, other, strict=True))


def _sum(*values: float | None) -> float | None:
    """Of those that are known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class LiveRates:
    """Rates over about the last second; None while there is nothing to measure."""

    hit_rate: float | None = None
    decode_tokens_per_second: float | None = None
    prompt_tokens_per_second: float | None = None
    bytes_per_second: float | None = None
    evictions_per_second: float | None = None
