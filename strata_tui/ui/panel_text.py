"""The engine panel's text: pure functions from a Snapshot to rows. Unknown numbers are dashes.

Styles name the theme's variables, and nothing is told by colour alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.content import Content

from ..engine.counters import Counters, DraftCounters, ReplyStats
from ..engine.events import EngineState, PlanLine, Snapshot
from ..engine.modes import SwitchState
from . import format as f
from .actions import BY_ID, key_name
from .history import RateHistory
from .keymap import DEFAULT, Keymap
from .panel_parts import (
    OTHERS,
    Row,
    Section,
    columns,
    meter,
    note,
    note_rows,
    pair,
    parts,
    ratio,
    split_meter,
    swatch,
    table_row,
    trend,
)

Rows = list[Row]
# Ranks, the first to go last; rows without one always stay.
_MORE, _REASONS, _LONG_REASONS, _DETAILS, _LAYERS = range(1, 6)
_MARKS = "▓▒█"  # of trunk, KV and slots in the bar of VRAM
_WORDY = 32  # cells from which there is room for all words
_LAYER_LINES = 2  # most lines of the strip of layers
_NEXT_ROUND = "from the next round on"  # when a switch takes effect, see Engine.set_modes


def panel_sections(snapshot: Snapshot, history: RateHistory, width: int, keymap: Keymap = DEFAULT) -> list[Section]:
    """The panel's sections for a width in cells; first what must be seen on short screens, too."""
    memory = snapshot.memory
    there = f.DASH if snapshot.model is None else "no GPU: slots in RAM"
    drafts, first = (snapshot.reply.drafts, snapshot.reply.first_token_seconds) if snapshot.reply else (None, None)
    return [
        Section(
            "VRAM" if memory.on_gpu else "Memory",
            memory_rows(snapshot, width),
            f.size_of(memory.vram_used, memory.vram_total) if memory.on_gpu else there,
        ),
        Section("Expert cache", cache_rows(snapshot, history, width), f"reply{'total':>{columns(width)[1]}}"),
        Section("Speed", speed_rows(snapshot, width), f"first token {f.seconds(first)}"),
        Section("Context", context_rows(snapshot, width), _context(snapshot)),
        Section("Switches", switch_rows(snapshot, width, keymap), _NEXT_ROUND if width >= _WORDY else "next round"),
        Section("Drafts", draft_rows(snapshot, width), _accepted(drafts)),
    ]


def memory_rows(snapshot: Snapshot, width: int) -> Rows:
    """VRAM with its parts, or what is in RAM where there is no GPU; then page-locked RAM with its parts."""
    memory = snapshot.memory
    if snapshot.model is None:
        return []
    named = (("trunk", memory.trunk), ("KV", memory.kv), ("slots", memory.arena))
    rows: Rows = []
    if memory.on_gpu:
        whole = memory.vram_used, memory.vram_total
        split = [(mark, size) for mark, (_, size) in zip(_MARKS, named, strict=True)]
        rows.append(split_meter(split, *whole, width))
        marked = [(swatch(mark, name, *whole), size) for mark, (name, size) in zip(_MARKS, named, strict=True)]
        rows += _sizes(width, *marked)
        rows += _sizes(width, (swatch(OTHERS, "other", *whole), memory.other), ("reserve", memory.reserve))
    else:
        rows += _sizes(width, *named)
        rows += _sizes(width, ("process", memory.process_rss), ("reserve", memory.reserve))
    mirror = memory.mirror if memory.on_gpu else 0  # in plain RAM without one
    rows += _sizes(width, ("pinned mirror", mirror), ("stage pool", memory.pinned - mirror))
    rows += _sizes(width, ("pageable", memory.pageable), ("refused", memory.refused), rank=_MORE)
    return rows


def cache_rows(snapshot: Snapshot, history: RateHistory, width: int) -> Rows:
    """Hits, misses and how they were served, of the reply and of all; the last second's rates; the layers."""
    model = snapshot.model
    if model is not None and model.experts_per_layer == 0:
        return [Row(Content("dense model: no experts"))]
    reply = snapshot.reply.counters if snapshot.reply else None
    total = snapshot.counters if model is not None else None
    rates, memory = snapshot.rates, snapshot.memory
    rows = [table_row(label, (_text(value, reply), _text(value, total)), width, rank) for label, rank, value in _CACHE]
    rows.append(trend("hit, 1 s", history.hit_rate, 1.0, f.percent(rates.hit_rate), width))
    rows.append(trend("copied", history.copied, None, f.byte_rate(rates.bytes_per_second), width, _MORE))
    evicted = f.rate(rates.evictions_per_second, "")
    rows.append(pair("evicted, 1 s", evicted, width, _DETAILS))
    slots = f.DASH if model is None else f"{f.count(memory.slots_used)} / {f.count(memory.slots_total)}"
    rows.append(pair("slots used", slots, width, _DETAILS))
    return [*rows, *_layer_rows(snapshot.reply, width)]


def _layer_rows(reply: ReplyStats | None, width: int) -> Rows:
    """The hit rate of each layer while decoding, one cell each, the first layer on the left."""
    layers = reply.layers if reply else ()
    rates = [hits / picks if picks else None for picks, hits in layers]
    lines = [rates[at : at + width] for at in range(0, len(rates), width)]
    if not any(rate is not None for rate in rates) or len(lines) > _LAYER_LINES:
        return []
    known = [rate for rate in rates if rate is not None]
    least = pair("hit by layer, least", f.percent(min(known)), width, _LAYERS)
    return [least, *(Row(Content.styled(f.spark(line, len(line), 1.0), "$primary"), _LAYERS) for line in lines)]


def speed_rows(snapshot: Snapshot, width: int) -> Rows:
    """Tokens per second of prompt and reply."""
    return [
        pair("prompt", f.rate(prompt_rate(snapshot)), width),
        pair("decode", f.rate(decode_rate(snapshot)), width),
    ]


def context_rows(snapshot: Snapshot, width: int) -> Rows:
    """How full the context is; of the reply's prompt, what was not read, what was, and what was read again; what is
    kept of the chats.
    """
    reply, memory = snapshot.reply, snapshot.memory
    used = ratio(snapshot.context_used, snapshot.context_total or None)
    read, again = (f.count(reply.read_tokens), f.count(reply.read_again)) if reply else (f.DASH, f.DASH)
    kept = (memory.snapshots_ram, memory.snapshots_disk) if snapshot.context_total else (None, None)
    ram, disk = (f.DASH if size is None else f.short_size(size) for size in kept)
    return [
        meter(used, width),
        pair("prompt: reused", reused_text(reply), width, _MORE),
        *parts((("prompt: read", read), ("again", again)), width, _MORE),
        *parts((("KV snapshots: RAM", ram), ("disk", disk)), width, _DETAILS),
    ]


def reused_text(reply: ReplyStats | None) -> str:
    """Tokens of the prompt that were not read, and from where they came, when it was not the context."""
    if reply is None:
        return f.DASH
    source = " from RAM" if reply.reused_ram else " from disk" if reply.reused_disk else ""
    return f.count(reply.reused_tokens) + source


def _context(snapshot: Snapshot) -> str:
    if not snapshot.context_total:
        return f.DASH
    return f"{f.count(snapshot.context_used)} / {f.count(snapshot.context_total)}"


def switch_rows(snapshot: Snapshot, width: int, keymap: Keymap = DEFAULT) -> Rows:
    """Each switch: key, name and the setting on the left; on the right the state in force; then the reason."""
    modes = snapshot.modes
    rows: Rows = []
    for action_id, name, state in (
        ("pin", "pinning", modes.pinning if modes else None),
        ("stager", "stager", modes.stager if modes else None),
        ("residency", "residency", modes.residency if modes else None),
        ("draft", "drafts", modes.draft if modes else None),
    ):
        key = next((key_name(key) for key in keymap.of(action_id)), f"/{BY_ID[action_id].slash}")
        setting = f" {state.wanted}" if state else ""
        rows.append(pair(f"{key} {name}{setting}", switch_value(state), width))
        first = _MORE if action_id == "stager" or (state and state.pending) else _REASONS
        rows += note_rows(_reason(state), width, first, _LONG_REASONS)
    rows.append(pair("stage pool built", f"{modes.pool_generation} x" if modes else f.DASH, width, _DETAILS))
    return rows


def draft_rows(snapshot: Snapshot, width: int) -> Rows:
    """Of the reply: the shares of accepted drafts by position; tokens and cost of a window."""
    drafts = snapshot.reply.drafts if snapshot.reply else None
    if drafts is None or not drafts.windows:
        return []
    rows: Rows = []
    if any(drafts.offered):
        shares = (f.percent(a / n, 0) if n else f.DASH for a, n in zip(drafts.accepted, drafts.offered, strict=True))
        rows.append(pair("by position", " ".join(shares), width, _DETAILS))
    cost = drafts.window_cost
    tokens = f"{drafts.tokens_per_window:.2f}"
    rows.append(pair("tokens a window", tokens, width, _DETAILS))
    rows.append(pair("window cost", f.DASH if cost is None else f"{cost:.2f} x plain", width, _DETAILS))
    return rows


def plan_lines(plan: Sequence[PlanLine], width: int) -> list[Content]:
    """The memory plan as a table: label, bytes, and where the number comes from."""
    first = max((len(line.label) for line in plan), default=0) + 1
    lines: list[Content] = []
    for line in plan:
        head = f"{line.label:{first}}{f.size(line.bytes):>10}  "
        about = note(line.note, width - len(head) + 2) or [Content()]
        lines.append(Content.assemble((head[:first], "$muted"), head[first:-2], about[0]))
        lines.extend(Content.assemble(" " * (len(head) - 2), more) for more in about[1:])
    return lines


def switch_value(state: SwitchState | None) -> str:
    """The state in force; `…` while a change is pending, never the wish; a dash while unknown."""
    if state is None:
        return f.DASH
    return "…" if state.pending else state.actual


def _reason(state: SwitchState | None) -> str:
    if state is None:
        return ""
    if state.pending:
        return _NEXT_ROUND
    reason = state.reason
    for shown in (f"{state.wanted}: ", f"{state.actual}: ", f"{state.actual}, "):  # these stand in the line above
        reason = reason.removeprefix(shown)
    return "" if reason in (state.actual, "chosen") else reason


def prompt_rate(snapshot: Snapshot) -> float | None:
    """Over the last second while a prompt is read, else the mean of the reply."""
    live = snapshot.rates.prompt_tokens_per_second if snapshot.state is EngineState.PROMPT else None
    return live if live is not None else (snapshot.reply.prompt_rate if snapshot.reply else None)


def decode_rate(snapshot: Snapshot) -> float | None:
    """Over the last second while a reply is generated, else the mean of the reply."""
    live = snapshot.rates.decode_tokens_per_second if snapshot.state is EngineState.DECODE else None
    return live if live is not None else (snapshot.reply.decode_rate if snapshot.reply else None)


def _accepted(drafts: DraftCounters | None) -> str:
    if drafts is None or not drafts.windows:
        return f.DASH
    return f"{f.count(sum(drafts.accepted))} of {f.count(sum(drafts.offered))} accepted"


def _sizes(width: int, *named: tuple[str | Content, int | None], rank: int = 0) -> Rows:
    return parts([(name, f.short_size(size)) for name, size in named], width, rank)


def _text(value: Callable[[Counters], str], counters: Counters | None) -> str:
    return f.DASH if counters is None else value(counters)


# Label, rank and value of the table's rows. A miss is a pick, what serves misses are loads of blobs.
_CACHE: Sequence[tuple[str, int, Callable[[Counters], str]]] = (
    ("hit, prompt", 0, lambda c: f.percent(c.prompt.hit_rate)),
    ("hit, decode", 0, lambda c: f.percent(c.decode.hit_rate)),
    ("hits", _DETAILS, lambda c: f.count(c.total.hits)),
    ("misses", _MORE, lambda c: f.count(c.total.misses)),
    ("from mirror", _MORE, lambda c: f.count(c.total.loads_mirror)),
    ("from file", _MORE, lambda c: f.count(c.total.loads_staged)),
    ("streamed", _MORE, lambda c: f.count(c.total.streamed)),
    ("past cache", _DETAILS, lambda c: f.short_size(c.total.bytes_direct)),
    ("evictions", _DETAILS, lambda c: f.count(c.total.evictions)),
    ("swaps", _LONG_REASONS, lambda c: f.count(c.swaps)),  # the adaptive tier's reason says them, too
)
