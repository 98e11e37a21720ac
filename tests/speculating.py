"""A model opened for speculative decoding, below the engine: contexts, speculator, and rounds with any drafter."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from strata_tui.engine import gguf_info, llama, native
from strata_tui.engine.llama import FLASH_OFF, FLASH_ON, Context, ContextOptions, Logits, Model
from strata_tui.engine.sampler import Sampler
from strata_tui.engine.sampling import Resolved
from strata_tui.engine.speculate_heads import count_heads

if TYPE_CHECKING:
    from strata_tui.engine import _core

GREEDY = Resolved(temperature=0)
Drafter = Callable[["Open", int], Sequence[int]]  # (what is open, the pending token) -> drafts


def memory_hash(context: Context) -> str:
    """Of the sequence's memory: KV cells, recurrent states."""
    lib = llama.library()
    size = lib.llama_state_seq_get_size(context.ptr, 0)
    data = (ctypes.c_uint8 * size)()
    assert lib.llama_state_seq_get_data(context.ptr, data, size, 0) == size
    return hashlib.sha256(data).hexdigest()


@dataclass
class Open:
    """`text`: every token so far; the last one is pending: it is not in the memory yet."""

    model: Model
    context: Context
    spec: _core.Speculator
    has_heads: bool
    tier: _core.Tier
    text: list[int] = field(default_factory=list)
    windows: list[tuple[int, list[int], list[int]]] = field(default_factory=list)  # position, window, chosen
    own: bool = False  # the drafts of the round are the heads'

    @property
    def position(self) -> int:
        return len(self.text) - 1

    def start(self, prompt: Sequence[int], sampling: Resolved, seed: int = 0, part: int = 128) -> Sampler:
        """Reads a prompt in parts and samples the first token. The sampler must be closed."""
        self.context.clear()
        self.spec.cut(0)
        for i in range(0, len(prompt), part):
            piece = prompt[i : i + part]
            assert self.context.decode(piece, i) == llama.OK
            assert self.spec.observe(piece, i) == 0
        sampler = Sampler(self.model, sampling)
        sampler.accept(prompt)
        self.spec.begin(sampler.address, sampler.greedy, sampler.keep, seed)
        status, token = self.spec.sample()
        assert status == 0
        self.text = [*prompt, token]
        self.windows.clear()
        return sampler

    def round(self, drafter: Drafter) -> list[int]:
        pending, position = self.text[-1], self.position
        self.own = False
        drafts = list(drafter(self, pending))
        status, tokens = self.spec.step(pending, position, drafts, own=self.own)
        assert status == 0
        self.windows.append((position, [pending, *drafts], tokens))
        self.text += tokens
        assert self.context.pos_max() == self.position - 1, "the memory holds all but the pending token"
        return tokens

    def write(
        self, prompt: Sequence[int], count: int, drafter: Drafter, sampling: Resolved = GREEDY, seed: int = 0
    ) -> list[int]:
        """At least `count` tokens, cut to as many."""
        sampler = self.start(prompt, sampling, seed)
        while len(self.text) < len(prompt) + count:
            self.round(drafter)
        self.spec.end()
        sampler.close()
        return self.text[len(prompt) : len(prompt) + count]

    def state(self) -> str:
        return memory_hash(self.context)

    def next_logits(self) -> Logits:
        """Behind the pending token, which is then taken back."""
        assert self.context.decode([self.text[-1]], self.position) == llama.OK
        return self.context.logits().copy()


def nothing(_: Open, __: int) -> list[int]:
    """Drafts nothing."""
    return []


def wrong(n: int) -> Drafter:
    """Drafts a token that the next one hardly is."""
    return lambda o, pending: [(pending + 7) % o.model.n_vocab] * n


def right(text: Sequence[int], n: int) -> Drafter:
    """Drafts what `text` (prompt included) says."""
    return lambda o, _: text[len(o.text) : len(o.text) + n]


def heads(n: int) -> Drafter:
    """The model's NextN heads."""

    def draft(o: Open, pending: int) -> list[int]:
        o.own = True
        drafts: list[int] = []
        while len(drafts) < n and (found := o.spec.draft(pending, o.position, not drafts)) is not None:
            drafts.append(found[0])
        return drafts

    return draft


@contextmanager
def opened(
    path: Path,
    *,
    slots: int | None = None,
    snapshots: int = 0,
    flash: bool = False,
    context: int = 512,
    outputs: int = 1,
) -> Iterator[Open]:
    """On the CPU device with one thread, with the model's NextN heads where it has some."""
    core = native.load()
    info = gguf_info.read_info(path)
    tier = core.Tier("CPU", [str(s) for s in info.shards], gguf_info.expert_groups(info))
    n_heads, _ = count_heads(info, core.MAX_DRAFTS)
    stream = tier.open_stream(gguf_info.load_segments(info))
    model = Model.load(path, tier=tier, stream=stream, pattern=gguf_info.override_pattern(info), heads=n_heads > 0)
    stream.close()
    attention = FLASH_ON if flash else FLASH_OFF
    target = Context(
        model, ContextOptions(context, 128, 1, attention, outputs=core.MAX_DRAFTS + 1, snapshots=snapshots), tier
    )
    head = (
        Context(model, ContextOptions(context, 128, 1, attention, outputs=outputs, heads=True), tier)
        if n_heads
        else None
    )
    if tier.n_experts:
        tier.allocate(tier.n_experts if slots is None else slots)
    spec = core.Speculator(target.ptr, head.ptr if head else 0, outputs, tier)
    try:
        yield Open(model, target, spec, head is not None, tier)
    finally:
        spec.close()
        if head:
            head.close()
        target.close()
        model.close()
        tier.close()
