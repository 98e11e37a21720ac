"""The C extension. Types for mypy; behaviour is documented in engine_ext/module.c."""

from collections.abc import Callable, Sequence
from typing import TypedDict

class Error(RuntimeError): ...

GGML_VERSION: str  # of the headers this was built with
BACKEND_API_VERSION: int
PHASE_PROMPT: int
PHASE_DECODE: int
PIN_AUTO: int
PIN_ON: int
PIN_OFF: int
STAGER_AUTO: int
STAGER_RAM: int
STAGER_SSD: int
STAGER_MAX_THREADS: int
DIRECT_AUTO: int  # reads past the page cache: where the experts do not fit into it
DIRECT_ON: int
DIRECT_OFF: int
POLICY_LRU: int
POLICY_ADAPTIVE: int
POLICY_FROZEN: int
MAX_DRAFTS: int  # of one window
STEP_SPOILED: int  # the memory could not be cut back: clear it
STEP_NOT_FINITE: int  # NaN or infinity in the logits: clear the memory
FAULT_NONE: int
FAULT_NEXT_EXPERT: int  # tests: serve expert e + 1 for e

def runtime_ggml_version() -> str: ...
def registry_api_version() -> int: ...
def address_of(symbol: str) -> int:
    """Address at which this module sees "llama_decode" or "ggml_backend_dev_count"."""

def struct_sizes() -> dict[str, int]:
    """sizeof llama_model_params, llama_context_params, llama_batch as this module was compiled."""

def devices() -> list[dict[str, object]]:
    """ggml devices: {"name", "description", "type" ("CPU", "GPU", "IGPU", "ACCEL"), "free", "total"}."""

def likeliest(logits: bytes, keep: int, /) -> list[int]:
    """Of float32 logits, the ids of the `keep` likeliest, likeliest first (of equal ones the lower id first)."""

def nextn_missing() -> str:
    """A function of llama.cpp's NextN interface that the loaded library lacks; "" when all are there."""

def probe_copies(
    device: str,
    size: int,
    *,
    ring: int = 64,
    copies: int = 512,
    pin: bool = True,
    fill: bool = False,
    pooled: bool = True,
    pipelined: bool = False,
    limit: float = 0.0,
) -> dict[str, object]:
    """Measures copies to a CUDA device (engine_ext/probe.h): {"host_us", "device_us" (lists), "total_s",
    "wait_wall_s", "wait_cpu_s", "pinned", "equal"}."""

class Stream:
    """A read-only FILE* over segments; for llama_model_load_from_file_ptr."""

    file_ptr: int
    bytes_read: int  # bytes truly read from the files
    bytes_skipped: int
    total: int  # bytes of all segments that are not skipped
    def cancel(self) -> None: ...
    def close(self) -> None: ...

# (length, None | bytes | (shard index, file offset)); None: skipped, the reader's memory is left as it is
Segment = tuple[int, None | bytes | tuple[int, int]]
# (tensor name, shard index, file offset, ggml type, ne0, ne1)
Slice = tuple[str, int, int, int, int, int]
# (layer, number of experts, used experts, slices)
Group = tuple[int, int, int, Sequence[Slice]]

class _Stager(TypedDict):
    profile: int  # STAGER_RAM or STAGER_SSD
    threads: int  # that take part
    changes: int  # of the profile, since the tier was made
    bytes: int  # filled, since the tier was made; also the next two
    fill_ns: int  # by all threads together
    waited_ns: int  # by the thread that decodes
    reason: str

class Tier:
    """The device that stands in for the real one, with its arena, stage pool and counters."""

    device_ptr: int  # ggml_backend_dev_t
    buft_ptr: int  # ggml_backend_buffer_type_t of expert tensors
    abort_callback: int  # for llama_context_params.abort_callback ...
    abort_data: int  # ... and its data
    blob_bytes: int  # of all experts together
    slot_bytes: int  # largest slot stride
    n_experts: int
    stream_unit: int  # of the largest unit that streams: a slice of every expert of a layer
    stream_layer: int  # of the largest layer as slots: a ring of two of these streams layers, not slices
    on_gpu: bool
    def __init__(
        self,
        device: str,
        shards: Sequence[str],
        groups: Sequence[Group],
        *,
        pool_buffers: int = 16,
        stager_threads: int = 0,
        direct: int = 0,
        copy_delay_us: int = 0,
        copy_seed: int = 0,
        fault: int = 0,
        compute_delay_us: int = 0,
    ) -> None: ...
    def open_stream(self, segments: Sequence[Segment]) -> Stream: ...
    def min_slots(self) -> int:
        """Fewest slots with which every layer can run: the used experts of one layer, per size class."""
    def arena_bytes(self, slots: int) -> int: ...
    def allocate(self, slots: int) -> int:
        """Allocates the arena; returns the number of slots. Raises Error when it does not fit."""
    def fill_mirror(self, limit: int, progress: Callable[[int, int], bool] | None = None) -> int: ...
    def set_policy(self, policy: int) -> None:
        """POLICY_*: which experts keep their slots. After allocate; between rounds, from the thread that decodes."""
    def swaps(self) -> dict[str, int]:
        """{"swaps", "rounds", "ns"}: of the adaptive tier; ns is host time. Any thread."""
    def usage(self) -> bytes:
        """float32 per expert in the order of the groups: picks, decayed while adaptive. Between rounds."""
    def prefill(self, usage: bytes | None = None, progress: Callable[[int, int], bool] | None = None) -> int:
        """Fills empty slots (after allocate, before the first round), hottest experts of `usage`, or evenly spread.
        progress(done, total) in slots; false stops. Returns the slots filled."""
    def refill(self, n: int) -> int:
        """Copies up to n residents into their slots again and waits for the last. Between rounds."""
    def fill_rate(self, n: int) -> float:
        """Bytes a second at which the stager fills n blobs, without copies. Between rounds."""
    def selftest(self) -> str:
        """Copies patterns through the stage pool into empty slots and compares: one line, or Error."""
    def refuse_pins(self, after: int) -> None:
        """For tests on a GPU: after so many more pinned allocations the next are refused; -1: none."""
    def limit_link(self, gigabytes_per_second: float) -> None:
        """For benches on a GPU: copies complete no faster; 0: no limit."""
    def keep_pieces(self, on: bool) -> None:
        """For tests and benches: whether pieces of short graphs are made so that a CUDA backend knows them again (the
        default there, and nowhere else). Between rounds."""
    def cancel(self, on: bool) -> None: ...
    def set_phase(self, phase: int, available: int = -1) -> None:
        """PHASE_*: where the counters count. A prompt asks where the experts' bytes are (`available`: as set_modes)."""
    def set_modes(self, pinning: int, stager: int, available: int = -1, threads: int = -1) -> None:
        """Drains the stage pool and rebuilds it. Call between rounds, from the thread that decodes.

        `available`: bytes of RAM that may still be used (automatic pinning keeps a floor), -1: unknown.
        `threads`: of the stager; 0: automatic, -1: as before."""
    def set_stream(self, tokens: int, ring: int = 0, own: bool = False) -> None:
        """Batches of at least so many tokens (0: none) stream experts through a ring of `ring` bytes: memory of its
        own, or lent slots. Between rounds. Raises Error when the ring does not fit."""
    def stream_ahead(self) -> None:
        """Begins to bring what the next streamed batch reads first. Right before it, from the thread that decodes."""
    def stream(self) -> dict[str, int]:
        """{"done", "total": units of the running batch, "filling", "from", "ring", "own", "lent"}. Any thread."""
    def modes(self) -> dict[str, object]:
        """{"pinning_wanted", "pinning", "pinning_reason", "stager_wanted", "stager", "stager_reason",
        "stager_threads", "stager_changes", "policy", "generation", "pool_buffers", "pinned", "pageable",
        "refused", "mirror"}"""
    def stager(self) -> _Stager:
        """The stager as it is. Any thread."""
    def counters(self) -> dict[str, dict[str, int]]:
        """{"prompt": {...}, "decode": {...}} with the fields of PhaseCounters. Any thread."""
    def layers(self) -> list[tuple[int, tuple[int, int], tuple[int, int]]]:
        """(layer, (picks, hits) of prompts, (picks, hits) of decoding) of each layer with experts. Any thread."""
    def arena(self) -> dict[str, int]:
        """{"bytes", "slots_total", "slots_used"}. Any thread."""
    def residents(self) -> list[tuple[int, int, int]]:
        """(layer, expert, slot) of every resident."""
    def verify(self, count: int, seed: int) -> int:
        """Compares `count` random residents with the file byte for byte; raises Error on a difference."""
    def last_error(self) -> str: ...
    def close(self) -> None: ...

class Speculator:
    """Draft, verify and accept for the sequence of one context (engine_ext/speculate.h). `target`, `draft`: addresses
    of llama_context; the second of type MTP, 0 for none. Both outlive it. Used by the thread that decodes.
    `outputs`: rows of one decode that `draft` may give logits for. `tier`: whose experts the windows pick; those of
    rejected drafts do not count as used."""

    @property
    def took_ns(self) -> int:
        """Of the last draft or step; what was waited for the interpreter's lock behind it does not count."""
    def __init__(self, target: int, draft: int = 0, outputs: int = 1, tier: Tier | None = None) -> None:
        """Raises Error when the model's heads cannot be used."""
    def begin(self, filters: int, greedy: bool, keep: int, seed: int, /) -> None:
        """A new reply. `filters`: address of the llama_sampler chain without the choice itself; lives until `end`.
        `keep`: with `greedy`, of how many of the likeliest tokens the chain leaves the likeliest; 0: of all."""
    def end(self) -> None: ...
    def sample(self, row: int = -1, /) -> tuple[int, int]:
        """(0 or STEP_NOT_FINITE, token) from a row of the last decode; the chain has then seen the token."""
    def observe(self, tokens: Sequence[int], position: int, /) -> int:
        """Prompt tokens were decoded from `position` on, in one decode: the draft context reads their hidden rows.
        Returns llama_decode's code."""
    def cut(self, position: int, /) -> None:
        """The target's memory was cut to `position` tokens."""
    def settle(self, position: int, /) -> bytes | None:
        """Between replies: the hidden row behind `position` tokens, where the draft context holds exactly these now.
        With the draft context's memory it is the whole state of drafting."""
    def resume(self, position: int, carry: bytes, /) -> None:
        """The draft context's memory was given back as it was with `position` tokens; `carry` is from `settle`."""
    def draft(self, pending: int, position: int, first: bool, /) -> tuple[int, float] | None:
        """(token, probability) behind `pending`, which stands at `position`, or behind the last draft."""
    def step(
        self,
        pending: int,
        position: int,
        drafts: Sequence[int],
        proposals: Sequence[Sequence[tuple[int, float]] | None] | None = None,
        own: bool = False,
    ) -> tuple[int, list[int]]:
        """Decodes and verifies one window: (llama_decode's code or STEP_*, tokens chosen; at least one when 0).
        The memory then holds `pending` and all of them but the last. `own`: the drafts are from `draft`, so they are
        verified against what they were drawn from; `proposals`: against these instead (tests)."""
    def close(self) -> None: ...
