"""What the machine says: RAM that this process may still take, its own size, cores, VRAM, and rates over time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .counters import Counters, LiveRates

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_NO_LIMIT = 1 << 62  # cgroup v1 writes a number of this size for "no limit"
RATE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Ram:
    """Bytes. `available`: what can be taken without swapping or hitting a limit; None where it cannot be told.

    `limit_from` names what sets it: "machine" or a cgroup's path.
    """

    available: int | None
    total: int | None
    limit_from: str = "machine"


def ram(root: Path = Path("/")) -> Ram:
    """The tightest of the machine's free memory and every ancestor cgroup's (v1 and v2)."""
    available = total = None
    source = "machine"
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            available = int(value.split()[0]) * 1024
        elif name == "MemTotal":
            total = int(value.split()[0]) * 1024
    for limit, used, where in _cgroup_memory(root):
        left = max(0, limit - used)
        if available is None or left < available:
            available, source = left, where
        if total is None or limit < total:
            total = limit
    return Ram(available, total, source)


def ram_for_core() -> int:
    """`ram().available` as the extension takes it: -1 where it cannot be told."""
    available = ram().available
    return -1 if available is None else available


def process_rss() -> int | None:
    """Bytes of this process in RAM, mapped file pages included; None where /proc is missing."""
    for line in _lines(Path("/proc/self/statm")):
        return int(line.split()[1]) * _PAGE
    return None


def physical_cores(root: Path = Path("/")) -> int:
    """Cores this process may use: its affinity, hyper-threads counted once, at most a cgroup's CPU quota."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in cpus:
        siblings = list(_lines(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
        cores.add(siblings[0] if siblings else str(cpu))
    count = max(1, len(cores))
    for folder in _cgroup_folders(root, "cpu"):
        quota = _cpu_quota(folder)
        if quota is not None:
            count = min(count, max(1, int(quota)))
    return count


class Vram:
    """One CUDA card's memory through NVML. Values are None where NVML cannot tell."""

    def __init__(self, pci_id: str | None) -> None:
        """`pci_id`: the card's PCI address; None: no card."""
        self._handle: object | None = None
        if pci_id is None:
            return
        import pynvml

        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_id.encode())
        except pynvml.NVMLError:
            self._handle = None

    def read(self) -> tuple[int | None, int | None]:
        """(used, total) in bytes, by all processes of the machine."""
        if self._handle is None:
            return None, None
        import pynvml

        try:
            memory = pynvml.nvmlDeviceGetMemoryInfo(self._handle)
            return int(memory.used), int(memory.total)
        except pynvml.NVMLError:
            return None, None


@dataclass(frozen=True, slots=True)
class _Sample:
    time: float
    counters: Counters
    prompt_tokens: int
    reply_tokens: int


class RateMeter:
    """Rates over about the last second, from samples of counters that only grow."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()

    def reset(self) -> None:
        self._samples.clear()

    def add(self, time: float, counters: Counters, prompt_tokens: int, reply_tokens: int) -> LiveRates:
        """`time` in seconds (monotonic); tokens are totals since the model was opened."""
        samples = self._samples
        samples.append(_Sample(time, counters, prompt_tokens, reply_tokens))
        while len(samples) > 2 and samples[1].time <= time - RATE_SECONDS:
            samples.popleft()
        first, last = samples[0], samples[-1]
        seconds = last.time - first.time
        if seconds <= 0:
            return LiveRates()
        moved = (last.counters - first.counters).total
        prompt = last.prompt_tokens - first.prompt_tokens
        reply = last.reply_tokens - first.reply_tokens
        if not (moved.rounds or prompt or reply):
            return LiveRates()
        return LiveRates(
            hit_rate=moved.hit_rate,
            decode_tokens_per_second=reply / seconds if reply else None,
            prompt_tokens_per_second=prompt / seconds if prompt else None,
            bytes_per_second=moved.bytes_copied / seconds,
            evictions_per_second=moved.evictions / seconds,
        )


def _lines(path: Path) -> Iterator[str]:
    """Lines of a small system file; none where it is missing or unreadable."""
    try:
        yield from path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return


def _number(path: Path) -> int | None:
    for line in _lines(path):
        return int(line) if line.strip().isdigit() else None
    return None


def _stat(path: Path, key: str) -> int:
    for line in _lines(path):
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0


def _cgroup_folders(root: Path, controller: str) -> Iterator[Path]:
    """This process's cgroup folders for a controller, from its own up to the mount's top; v1 and v2."""
    paths: dict[str, str] = {}  # "" is v2
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for name in names.split(","):
            paths[name] = path
    for line in _lines(root / "proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        v2, v1 = kind[0] == "cgroup2", kind[0] == "cgroup" and controller in kind[2].split(",")
        name = "" if v2 else controller
        if not (v1 or v2) or name not in paths:
            continue
        path = paths[name]
        top = root / fields[4].lstrip("/")
        # The mount shows the tree from fields[3] on; a namespace may show another path than the process has.
        inside = path.removeprefix(fields[3].rstrip("/")).strip("/")
        folder = top / inside if (top / inside).is_dir() else top
        while True:
            yield folder
            if folder == top:
                break
            folder = folder.parent


def _cgroup_memory(root: Path) -> Iterator[tuple[int, int, str]]:
    """(limit, used without reclaimable file pages, folder) of each ancestor cgroup that has a limit."""
    for folder in _cgroup_folders(root, "memory"):
        limit, used, key = _number(folder / "memory.max"), _number(folder / "memory.current"), "inactive_file"
        if used is None:
            limit = _number(folder / "memory.limit_in_bytes")
            used, key = _number(folder / "memory.usage_in_bytes"), "total_inactive_file"
        if limit is None or used is None or limit >= _NO_LIMIT:
            continue
        yield limit, max(0, used - _stat(folder / "memory.stat", key)), str(folder)


def _cpu_quota(folder: Path) -> float | None:
    """CPUs' worth of time that a cgroup may use, or None for no limit."""
    for line in _lines(folder / "cpu.max"):
        quota, _, period = line.partition(" ")
        return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None
    quota_us, period_us = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota_us / period_us if quota_us and period_us else None
