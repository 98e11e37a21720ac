"""What the machine says, read from trees of system files as kernels write them, and from this very machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from strata_tui.engine.counters import Counters, LiveRates, PhaseCounters
from strata_tui.engine.telemetry import RateMeter, Vram, physical_cores, process_rss, ram

MIB = 1 << 20


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = "MemTotal:       16777216 kB\nMemFree:         100 kB\nMemAvailable:    8388608 kB\n"
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


def test_without_limits_the_machine_counts(tmp_path: Path) -> None:
    found = ram(tree(tmp_path, {"proc/meminfo": MEMINFO}))
    assert (found.available, found.total, found.limit_from) == (8192 * MIB, 16384 * MIB, "machine")


def test_v2_takes_the_tightest_ancestor_and_gives_back_file_pages(tmp_path: Path) -> None:
    top = "sys/fs/cgroup"
    root = tree(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/a/b\n",
            "proc/self/mountinfo": V2_MOUNT,
            f"{top}/a/memory.max": f"{4096 * MIB}\n",
            f"{top}/a/memory.current": f"{1024 * MIB}\n",
            f"{top}/a/memory.stat": f"anon 1\ninactive_file {256 * MIB}\n",
            f"{top}/a/b/memory.max": "max\n",
            f"{top}/a/b/memory.current": f"{512 * MIB}\n",
        },
    )
    found = ram(root)
    assert found.available == (4096 - 1024 + 256) * MIB
    assert found.total == 4096 * MIB
    assert found.limit_from.endswith("cgroup/a")


def test_v1_no_limit_is_no_limit(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory/box"
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "4:memory:/box\n0::/\n",
        "proc/self/mountinfo": V1_MOUNT,
        f"{folder}/memory.limit_in_bytes": "9223372036854771712\n",
        f"{folder}/memory.usage_in_bytes": f"{100 * MIB}\n",
    }
    assert ram(tree(tmp_path / "free", files)).limit_from == "machine"
    files[f"{folder}/memory.limit_in_bytes"] = f"{1024 * MIB}\n"
    files[f"{folder}/memory.stat"] = f"total_inactive_file {10 * MIB}\n"
    assert ram(tree(tmp_path / "tight", files)).available == (1024 - 100 + 10) * MIB


def test_a_container_that_shows_its_host_path(tmp_path: Path) -> None:
    # the process's path is the host's, the mount shows only the container's own folder
    root = tree(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/docker/abc\n",
            "proc/self/mountinfo": "30 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            "sys/fs/cgroup/memory.max": f"{512 * MIB}\n",
            "sys/fs/cgroup/memory.current": f"{128 * MIB}\n",
        },
    )
    assert ram(root).available == 384 * MIB


def test_nothing_readable_is_unknown(tmp_path: Path) -> None:
    found = ram(tmp_path)
    assert (found.available, found.total) == (None, None)


def test_cores_count_siblings_once_and_obey_a_quota(tmp_path: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    same = {f"sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list": "0-255\n" for n in cpus}
    assert physical_cores(tree(tmp_path / "one", same)) == 1
    own = {f"sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list": f"{n}\n" for n in cpus}
    assert physical_cores(tree(tmp_path / "all", own)) == len(cpus)
    quota = own | {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/cpu.max": "150000 100000\n",
    }
    assert physical_cores(tree(tmp_path / "quota", quota)) == 1
    quota["sys/fs/cgroup/cpu.max"] = "max 100000\n"
    assert physical_cores(tree(tmp_path / "max", quota)) == len(cpus)


def test_this_machine() -> None:
    found = ram()
    assert found.available is not None
    assert found.total is not None
    assert 0 < found.available <= found.total
    assert 1 <= physical_cores() <= (os.cpu_count() or 1)
    rss = process_rss()
    assert rss is not None
    assert rss > MIB


def test_no_card_is_unknown_not_zero() -> None:
    assert Vram(None).read() == (None, None)
    assert Vram("ffff:ff:1f.7").read() == (None, None)


def counters(**decode: int) -> Counters:
    return Counters(decode=PhaseCounters(**decode))


def test_rates_are_over_the_last_second() -> None:
    meter = RateMeter()
    assert meter.add(10.0, Counters(), 0, 0) == LiveRates()
    meter.add(10.5, counters(picks=100, hits=0, rounds=1, bytes_copied=10**6, evictions=4), 0, 50)
    rates = meter.add(12.0, counters(picks=200, hits=80, rounds=2, bytes_copied=4 * 10**6, evictions=10), 0, 80)
    assert rates.hit_rate == pytest.approx(0.8)
    assert rates.decode_tokens_per_second == pytest.approx(20)
    assert rates.prompt_tokens_per_second is None
    assert rates.bytes_per_second == pytest.approx(2 * 10**6)
    assert rates.evictions_per_second == pytest.approx(4)


def test_rates_of_an_idle_engine_are_unknown() -> None:
    meter = RateMeter()
    for second in range(5):
        rates = meter.add(float(second), counters(picks=5, hits=5, rounds=1), 7, 9)
    assert rates == LiveRates()


def test_rates_start_again_with_another_model() -> None:
    meter = RateMeter()
    meter.add(0.0, counters(picks=100, hits=100, rounds=9), 0, 9)
    meter.reset()
    assert meter.add(1.0, Counters(), 0, 0) == LiveRates()
