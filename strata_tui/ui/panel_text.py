"""The engine panel's text: pure functions from a Snapshot to lines. Unknown numbers are dashes.

A line is `Content`; styles name the theme's variables, and nothing is told by colour alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from ..engine.counters import Counters, ReplyStats
from ..engine.events import EngineState, PlanLine, Snapshot
from ..engine.modes import SwitchState
from ..text import clean_line
from . import format as f
from .actions import BY_ID
from .history import RateHistory

Lines = list[Content]
_FULL = 0.9  # from here a meter of memory or context is drawn in the warning colour


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, with what stands on its right, and the lines under it."""

    heading: str
    lines: Lines
    beside: str = ""


def panel_sections(snapshot: Snapshot, history: RateHistory, width: int) -> list[Section]:
    """The panel's sections for a width in cells; first what must be seen on short screens, too."""
    last = _columns(width)[1]
    return [
        Section("Memory", memory_lines(snapshot, width)),
        Section("Expert cache", cache_lines(snapshot, history, width), f"reply{'total':>{last}}"),
        Section("Switches", switch_lines(snapshot, width)),
        Section("Drafts", draft_lines(snapshot, width)),
        Section("Speed", speed_lines(snapshot, width)),
        Section("Context", context_lines(snapshot, width)),
    ]


def join_sections(sections: Sequence[Section], width: int, height: int) -> Content:
    """One text of all sections, parted by empty lines where these fit, too."""
    need = sum(1 + sum(1 + (line.cell_length - 1) // width for line in s.lines) for s in sections)
    gaps = need + len(sections) - 1 <= height
    lines: Lines = []
    for section in sections:
        if lines and gaps:
            lines.append(Content())
        beside = section.beside.rjust(width - len(section.heading))
        lines.append(Content.assemble((section.heading, "bold $primary"), (beside, "$muted")))
        lines.extend(section.lines)
    return Content("\n").join(lines)


def memory_lines(snapshot: Snapshot, width: int) -> Lines:
    """VRAM with its parts, or the arena in RAM where there is no GPU; page-locked RAM."""
    memory = snapshot.memory
    if snapshot.model is None:
        return [pair("no model loaded", f.DASH, width)]
    lines: Lines = []
    if memory.on_gpu:
        lines.append(pair("VRAM", f.size_of(memory.vram_used, memory.vram_total), width))
        lines.append(meter(_ratio(memory.vram_used, memory.vram_total), width))
    else:
        lines.append(pair("no GPU", "arena in RAM", width))
    parts = (("trunk", memory.trunk), ("KV", memory.kv), ("slots", memory.arena))
    lines.append(
        Content("  ").join(Content.assemble((name + " ", "$muted"), f.short_size(size)) for name, size in parts)
    )
    lines.append(pair("pinned RAM", f.size(memory.pinned), width))
    refused = f.size(memory.refused)
    lines.append(pair("pageable, refused", f"{f.size(memory.pageable)}, {refused}", width))
    return lines


def cache_lines(snapshot: Snapshot, history: RateHistory, width: int) -> Lines:
    """Hits, misses, evictions and swaps of the reply and of all replies; then the last second's rates."""
    model = snapshot.model
    if model is not None and model.experts_per_layer == 0:
        return [Content("dense model: no experts")]
    reply = snapshot.reply.counters if snapshot.reply else None
    total = snapshot.counters if model is not None else None
    first, last = _columns(width)
    labels = ("hit, prompt", "hit, decode", "hits", "misses", "evictions", "swaps")
    lines = [
        Content.assemble((f"{label:{first}}", "$muted"), f"{reply_text:>{last}}{total_text:>{last}}")
        for label, reply_text, total_text in zip(labels, _counter_texts(reply), _counter_texts(total), strict=True)
    ]
    rates = snapshot.rates
    lines.append(_trend("hit, 1 s", history.hit_rate, 1.0, f.percent(rates.hit_rate), width))
    lines.append(_trend("evicted", history.evictions, None, f.rate(rates.evictions_per_second, "/s"), width))
    memory = snapshot.memory
    slots = f.DASH if model is None else f"{f.count(memory.slots_used)} / {f.count(memory.slots_total)}"
    lines.append(pair("slots used", slots, width))
    return lines


def speed_lines(snapshot: Snapshot, width: int) -> Lines:
    """Tokens per second of prompt and reply, and the time to the first token."""
    reply = snapshot.reply
    return [
        pair("prompt", f.rate(prompt_rate(snapshot)), width),
        pair("decode", f.rate(decode_rate(snapshot)), width),
        pair("first token", f.seconds(reply.first_token_seconds if reply else None), width),
    ]


def draft_lines(snapshot: Snapshot, width: int) -> Lines:
    """Of the reply: drafts accepted and offered, the shares by position; tokens and cost of a window."""
    drafts = snapshot.reply.drafts if snapshot.reply else None
    if drafts is None or not drafts.windows:
        return [pair("accepted", f.DASH, width)]
    accepted, offered = sum(drafts.accepted), sum(drafts.offered)
    lines = [pair("accepted", f"{f.count(accepted)} of {f.count(offered)}", width)]
    if offered:
        shares = (f.percent(a / n, 0) if n else f.DASH for a, n in zip(drafts.accepted, drafts.offered, strict=True))
        lines.append(pair("by position", " ".join(shares), width))
    cost = drafts.window_cost
    tokens = f"{drafts.tokens_per_window:.2f}"
    lines.append(pair("tokens a window", tokens, width))
    lines.append(pair("window cost", f.DASH if cost is None else f"{cost:.2f} x plain", width))
    return lines


def context_lines(snapshot: Snapshot, width: int) -> Lines:
    """Tokens in the context and how full it is; of the reply's prompt, those that were not read, and those that were
    read again; what is kept of the chats."""
    if not snapshot.context_total:
        return [pair("tokens", f.DASH, width)]
    ratio = snapshot.context_used / snapshot.context_total
    text = f"{f.count(snapshot.context_used)} / {f.count(snapshot.context_total)}"
    reply, memory = snapshot.reply, snapshot.memory
    saved = f"RAM {f.short_size(memory.snapshots_ram)}, disk {f.short_size(memory.snapshots_disk)}"
    return [
        pair("tokens", text, width),
        meter(ratio, width),
        pair("reused", reused_text(reply), width),
        pair("read again", f.count(reply.read_again if reply else None), width),
        pair("KV snapshots", saved, width),
    ]


def reused_text(reply: ReplyStats | None) -> str:
    """Tokens of the prompt that were not read, and from where they came, when it was not the context."""
    if reply is None:
        return f.DASH
    source = " from RAM" if reply.reused_ram else " from disk" if reply.reused_disk else ""
    return f.count(reply.reused_tokens) + source


def switch_lines(snapshot: Snapshot, width: int) -> Lines:
    """Each switch: key, name and the setting on the left; on the right the state in force; then the reason."""
    modes = snapshot.modes
    lines: Lines = []
    for action_id, name, state in (
        ("pin", "pinning", modes.pinning if modes else None),
        ("stager", "stager", modes.stager if modes else None),
        ("residency", "residency", modes.residency if modes else None),
        ("draft", "drafts", modes.draft if modes else None),
    ):
        key = BY_ID[action_id].keys[0]
        setting = f" {state.wanted}" if state else ""
        lines.append(pair(f"{key} {name}{setting}", switch_value(state), width))
        lines.extend(_note(_reason(state), width))
    lines.append(pair("stage pool built", f"{modes.pool_generation} x" if modes else f.DASH, width))
    return lines


def plan_lines(plan: Sequence[PlanLine], width: int) -> Lines:
    """The memory plan as a table: label, bytes, and where the number comes from."""
    first = max((len(line.label) for line in plan), default=0) + 1
    lines: Lines = []
    for line in plan:
        head = f"{line.label:{first}}{f.size(line.bytes):>10}  "
        note = _note(line.note, width - len(head) + 2) or [Content()]
        lines.append(Content.assemble((head[:first], "$muted"), head[first:-2], note[0]))
        lines.extend(Content.assemble(" " * (len(head) - 2), more) for more in note[1:])
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
        return "from the next round on"
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


def pair(label: str, value: str, width: int, style: str = "") -> Content:
    """A label on the left and a value on the right of one line."""
    gap = max(1, width - Content(label).cell_length - Content(value).cell_length)
    return Content.assemble((label, "$muted"), " " * gap, (value, style))


def meter(ratio: float | None, width: int) -> Content:
    """A bar with its percentage."""
    text = f.percent(ratio, 0).rjust(6)
    style = "$warning" if ratio is not None and ratio >= _FULL else "$primary"
    return Content.assemble((f.bar(ratio, max(4, width - len(text))), style), text)


def _note(text: str, width: int) -> Lines:
    wrapped = Content(clean_line(text)).wrap(max(1, width - 2)) if text else []
    return [Content.assemble("  ", line.stylize("$muted")) for line in wrapped]


def _trend(label: str, values: deque[float | None], top: float | None, value: str, width: int) -> Content:
    first = 10
    room = width - first - 10
    line = f.spark(values, room, top) if values else " " * room
    return Content.assemble((f"{label:{first}}", "$muted"), (line, "$primary"), f"{value:>10}")


def _columns(width: int) -> tuple[int, int]:
    last = max(8, (width - 12) // 2)
    return max(11, width - 2 * last), last


def _counter_texts(counters: Counters | None) -> list[str]:
    if counters is None:
        return [f.DASH] * 6
    total = counters.total
    return [
        f.percent(counters.prompt.hit_rate),
        f.percent(counters.decode.hit_rate),
        f.count(total.hits),
        f.count(total.misses),
        f.count(total.evictions),
        f.count(counters.swaps),
    ]


def _ratio(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None
