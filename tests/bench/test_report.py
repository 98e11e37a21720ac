from __future__ import annotations

from strata_tui.bench.report import amount


def test_small_amounts_are_in_mib() -> None:
    assert amount(3 << 19) == "1.5 MiB"
    assert amount((1 << 30) - 1) == "1024.0 MiB"
    assert amount(1 << 30) == "1.00 GiB"
