"""How the engine opens models; flags, environment and settings all end here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .modes import Modes


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """None means that the memory plan decides. GiB are 2**30 bytes, contexts and batches tokens."""

    context: int | None = None
    slots: int | None = None
    vram_gib: float | None = None  # most VRAM that trunk, KV cache, compute buffers and slots may take together
    reserve_gib: float | None = None  # left free: VRAM on a GPU, else RAM
    ram_gib: float | None = None  # as vram_gib, where there is no GPU
    mirror_gib: float | None = None
    gpu: int | None = None  # None: the card with most free VRAM; -1: the CPU
    threads: int | None = None
    batch: int | None = None  # tokens read at once; llama.cpp's ubatch
    stream_from: int | None = None  # tokens of a batch from which its experts stream through the ring; 0: never
    ring_gib: float | None = None  # None: the ring borrows slots; else memory of its own
    flash_attention: bool | None = None  # None: where llama.cpp thinks it works
    modes: Modes = field(default_factory=Modes)
    pool_buffers: int = 24  # depth of the ring of stage buffers; deeper rings were slower, out of the L3 cache
    stager_threads: int | None = None  # None: by the stager's profile, or measured where that is automatic
    profiles: Path | None = None  # folder of the usage profiles; None: they are neither read nor written
    snapshot_ram_gib: float | None = None  # of KV snapshots in RAM; 0: none there
    snapshot_disk_gib: float = 4.0  # of those on the disk; 0: none there
    snapshots: Path | None = None  # folder of those on the disk; None: none are written or read
    lookup: bool = True  # benches: whether drafts may come from the text itself
    draft_min_p: float = 0.0  # drafts end where their joint confidence falls below it
    verify_cache: int = 0  # residents are compared with the file every so many rounds; 0: never
    log: Path | None = None
    copy_delay_us: int = 0  # tests, on the CPU device: random delay of copies
    copy_seed: int = 0
    fault: int = 0  # tests: _core.FAULT_*
