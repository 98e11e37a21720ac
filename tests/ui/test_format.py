from __future__ import annotations

import pytest

from strata_tui.ui import format as f


def test_unknown_is_a_dash() -> None:
    assert {f.size(None), f.count(None), f.percent(None), f.rate(None), f.seconds(None), f.short_size(None)} == {f.DASH}
    assert f.size_of(None, None) == f.DASH


def test_zero_is_a_zero() -> None:
    assert f.rate(11838.2) == "11 838.2 tok/s"
    assert (f.size(0), f.count(0), f.percent(0.0), f.rate(0.0)) == ("0 B", "0", "0.0 %", "0.0 tok/s")
    assert f.short_size(0) == "0"


def test_rates_in_few_cells() -> None:
    assert (f.rate(1042.0, ""), f.byte_rate(158e6)) == ("1 042.0/s", "151M/s")


@pytest.mark.parametrize(
    ("value", "long", "short"),
    [
        (1023, "1023 B", "1023B"),
        (1024, "1.0 KiB", "1.0K"),
        (180 << 20, "180.0 MiB", "180M"),
        (3 << 29, "1.5 GiB", "1.5G"),
        (5 << 50, "5120.0 TiB", "5120T"),
    ],
)
def test_sizes(value: int, long: str, short: str) -> None:
    assert (f.size(value), f.short_size(value)) == (long, short)


def test_a_part_has_the_unit_of_the_whole() -> None:
    assert f.size_of(512 << 20, 24 << 30) == "0.5 / 24.0 GiB"
    assert f.size_of(None, 24 << 30) == f"{f.DASH} / 24.0 GiB"
    assert f.short_size_of(23 << 30, 24 << 30) == "23.0/24.0G"


def test_all_is_only_said_of_all() -> None:
    assert f.percent(1.0) == "100.0 %"
    assert f.percent(0.99999) == "99.9 %"
    assert f.percent(0.999, 0) == "99 %"
    assert f.percent(0.29) == "29.0 %"  # 0.29 * 1000 is a little under 290


def test_seconds() -> None:
    assert [f.seconds(x) for x in (0.944, 22.5, 185)] == ["0.94 s", "22.5 s", "3 min 05 s"]


def test_bar() -> None:
    assert f.bar(0.5, 4) == "██░░"
    assert f.bar(7.0, 4) == "████"
    assert f.bar(None, 4) == "░░░░"


def test_spark() -> None:
    assert f.spark([0, None, 0.5, 1.0], 6, top=1.0) == "  ▁ ▄▇"
    assert f.spark([1, 2, 4], 2) == "▄▇"
    assert f.spark([0, 0], 2) == "▁▁"
