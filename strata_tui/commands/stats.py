"""A reply's counters as lines of text."""

from __future__ import annotations

from ..engine.counters import ReplyStats


def stats_lines(stats: ReplyStats) -> list[str]:
    """One line a group; an unknown value is a dash."""
    total = stats.counters.total
    prompt, decode = stats.counters.prompt, stats.counters.decode
    swaps = _number(stats.counters.swaps, "d")
    first = _number(stats.first_token_seconds, ".2f")
    return [
        f"prompt    {stats.prompt_tokens} tokens, {stats.reused_tokens} of them reused, "
        f"{_number(stats.prompt_rate, '.1f')} tokens/s, first token after {first} s",
        f"known     {_number(stats.reused_ram, 'd')} tokens from a KV snapshot in RAM, "
        f"{_number(stats.reused_disk, 'd')} from one on the disk, {_number(stats.read_again, 'd')} read again",
        f"reply     {stats.reply_tokens} tokens, {_number(stats.decode_rate, '.1f')} tokens/s",
        f"hit rate  prompt {_share(prompt.hit_rate)}, decode {_share(decode.hit_rate)}",
        f"experts   {total.loads} loads ({total.loads_mirror} from the mirror, {total.loads_staged} staged), "
        f"{total.evictions} evictions, {swaps} swaps, {total.bytes_copied / 2**20:.1f} MiB copied",
        f"reading   {total.bytes_filled / 2**20:.1f} MiB from the file, {total.bytes_direct / 2**20:.1f} of them past "
        f"the page cache; {total.asks} asks ({total.asks_cached} cached) in {total.ask_ns / 1e6:.1f} ms",
        f"context   {stats.context_used} of {stats.context_total} tokens",
    ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
