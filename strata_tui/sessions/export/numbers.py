"""A reply's numbers as an export shows them."""

from __future__ import annotations

from datetime import UTC, datetime

from ...text import clean_line
from ..rows import MessageRow


def numbers_of(message: MessageRow) -> dict[str, object]:
    """Names and plain values; None is unknown. Rates are tokens per second and shares of 1."""
    head: dict[str, object] = {
        "message": message.id,
        "model": clean_line(message.model),
        "created": iso_date(message.created),
        "status": message.status.value,
    }
    stats = message.reply_stats
    if message.params:  # those that were not left to the engine
        head["parameters"] = {name: value for name, value in message.params.items() if value is not None}
    if stats is None:
        return head
    total, drafts = stats.counters.total, stats.drafts
    return head | {
        "quantization": clean_line(stats.quantization) or None,
        "prompt_tokens": stats.prompt_tokens,
        "reused_tokens": stats.reused_tokens,
        "reused_from_ram": stats.reused_ram,
        "reused_from_disk": stats.reused_disk,
        "read_again_tokens": stats.read_again,
        "read_tokens": stats.read_tokens,
        "reply_tokens": stats.reply_tokens,
        "prompt_tokens_per_second": _rounded(stats.prompt_rate, 2),
        "tokens_per_second": _rounded(stats.decode_rate, 2),
        "first_token_seconds": _rounded(stats.first_token_seconds, 3),
        "prompt_hit_rate": _rounded(stats.counters.prompt.hit_rate, 4),
        "hit_rate": _rounded(stats.counters.decode.hit_rate, 4),
        "misses": total.misses,
        "loads_from_mirror": total.loads_mirror,
        "loads_from_file": total.loads_staged,
        "streamed": total.streamed,
        "evictions": total.evictions,
        "swaps": stats.counters.swaps,
        "bytes_copied": total.bytes_copied,
        "drafts_offered": None if drafts is None else sum(drafts.offered),
        "drafts_accepted": None if drafts is None else sum(drafts.accepted),
        "context_used": stats.context_used,
        "context_total": stats.context_total,
    }


def iso_date(seconds: float) -> str:
    """A Unix time in UTC, to the second."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
