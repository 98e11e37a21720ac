"""The lines of --stats."""

from __future__ import annotations

from strata_tui.commands.stats import stats_lines
from strata_tui.engine.counters import Counters, PhaseCounters, ReplyStats


def test_stats_lines_show_a_dash_for_what_is_unknown() -> None:
    assert "- tokens/s, first token after - s" in stats_lines(ReplyStats())[0]
    assert stats_lines(ReplyStats())[3] == "hit rate  prompt -, decode -"
    assert "0 evictions, - swaps," in stats_lines(ReplyStats())[4]
    stats = ReplyStats(
        prompt_tokens=30,
        reused_tokens=10,
        reused_ram=10,
        reused_disk=0,
        reply_tokens=21,
        prompt_seconds=0.5,
        first_token_seconds=0.625,
        decode_seconds=2.0,
        counters=Counters(
            PhaseCounters(picks=4, hits=1, loads=3, loads_staged=3, bytes_copied=3 << 19, bytes_filled=3 << 20),
            PhaseCounters(
                picks=8, hits=6, loads=2, loads_mirror=2, evictions=2, bytes_copied=1 << 20, asks=9, asks_cached=5
            ),
            swaps=7,
        ),
        context_used=51,
        context_total=4096,
    )
    assert stats_lines(stats) == [
        "prompt    30 tokens, 10 of them reused, 40.0 tokens/s, first token after 0.62 s",
        "known     10 tokens from a KV snapshot in RAM, 0 from one on the disk, - read again",
        "reply     21 tokens, 10.0 tokens/s",
        "hit rate  prompt 25.0%, decode 75.0%",
        "experts   5 loads (2 from the mirror, 3 staged), 2 evictions, 7 swaps, 2.5 MiB copied",
        "reading   3.0 MiB from the file, 0.0 of them past the page cache; 9 asks (5 cached) in 0.0 ms",
        "context   51 of 4096 tokens",
    ]
