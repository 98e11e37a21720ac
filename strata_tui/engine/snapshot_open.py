"""Gives an open model its KV snapshots: how much room they get, and what makes a snapshot fit."""

from __future__ import annotations

import hashlib
from logging import Logger
from typing import TYPE_CHECKING

from ..errors import UserError
from .checkpoints import Checkpoints
from .events import PlanLine
from .gguf_info import GgufInfo
from .llama import Context, library
from .options import EngineOptions
from .plan import GIB, Machine, Plan, gib
from .prefix import Prefix
from .profile import model_key
from .snapshot_disk import Disk
from .snapshots import Snapshots

if TYPE_CHECKING:
    from .speculate import Speculation

DEFAULT_RAM = GIB
SHARE = 4  # of the RAM that the plan leaves, snapshots take one in so many by themselves
CHECKPOINTS = 4  # of the snapshots' budget, the live sequence's checkpoints get one in so many
_SAMPLES, _SAMPLE = 32, 4096  # of each shard's tensor data; how many, and their bytes


def budgets(plan: Plan, trunk: int, machine: Machine, options: EngineOptions) -> tuple[int, int, str]:
    """(bytes in RAM, bytes on the disk, why the first); `trunk` in bytes. Raises UserError."""
    for flag, value in (
        ("--snapshot-ram-gib", options.snapshot_ram_gib),
        ("--snapshot-disk-gib", options.snapshot_disk_gib),
    ):
        if value is not None and value < 0:
            raise UserError(f"{flag} {value:g} is below 0: use 0 (none) or more.")
    disk = int(options.snapshot_disk_gib * GIB) if options.snapshots is not None else 0
    if options.snapshot_ram_gib is not None:
        return int(options.snapshot_ram_gib * GIB), disk, "--snapshot-ram-gib"
    available = machine.ram.available
    if available is None:
        return 0, disk, "RAM unknown"
    taken = plan.mirror if machine.on_gpu else trunk + plan.kv + plan.compute + plan.arena + plan.ring
    left = max(0, available - taken)
    return min(DEFAULT_RAM, left // SHARE), disk, f"{gib(DEFAULT_RAM)}, or a quarter of what the plan leaves"


def plan_line(ram_bytes: int, disk_bytes: int, why: str) -> PlanLine:
    disk = f"{gib(disk_bytes)} more on the disk" if disk_bytes else "none on the disk"
    return PlanLine("KV snapshots", ram_bytes, f"at most: {why}; {disk}")


def make_prefix(context: Context, has_state: bool, window: int, ram_bytes: int, log: Logger) -> Prefix:
    checkpoints = Checkpoints(context, log, ram_bytes // CHECKPOINTS)
    return Prefix(context, checkpoints, has_state=has_state, window=window)


def open_snapshots(
    info: GgufInfo,
    context: Context,
    prefix: Prefix,
    speculation: Speculation,
    device: str,
    options: EngineOptions,
    limits: tuple[int, int],
    log: Logger,
) -> Snapshots:
    """`limits`: bytes in RAM and on the disk. Errors of the disk are logged: there are none there then."""
    ram_bytes, disk_bytes = limits
    disk = None
    if disk_bytes and options.snapshots is not None:
        try:
            disk = Disk(options.snapshots, identity(info, context, device), disk_bytes, log)
        except OSError as error:
            log.warning("snapshot: none on the disk: %s", error)
    return Snapshots(context, prefix, speculation, ram_bytes, disk, log)


def identity(info: GgufInfo, context: Context, device: str) -> dict[str, object]:
    """What a sequence's bytes depend on beside its tokens. Raises OSError."""
    import llama_cpp

    long_rope = any("rope_factors_long" in t.name for t in info.tensors)  # chosen by the context's size
    return {
        "model": model_key(info),
        "weights": _sampled(info),
        "llama_cpp": llama_cpp.__version__,
        "state": int(library().LLAMA_STATE_SEQ_VERSION),
        "device": device,
        "kv": context.kind,
        "context": context.size if long_rope else 0,
    }


def _sampled(info: GgufInfo) -> str:
    """A hash of parts of the tensor data: models can have the same header and other weights."""
    digest = hashlib.blake2b(digest_size=16)
    for number, shard in enumerate(info.shards):
        size = shard.stat().st_size
        start = min((t.file_offset for t in info.tensors if t.shard == number), default=0)
        step = max(1, (size - start) // _SAMPLES)
        with shard.open("rb") as file:
            for at in range(start, size, step):
                file.seek(at)
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()
