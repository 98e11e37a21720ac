"""The engine panel's text: pure functions from a Snapshot to lines. Unknown numbers are dashes.

A line is `Content`; styles name the theme's variables, and nothing is told by colour alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from textual.content import Content

from ..engine.counters import Counters, DraftCounters
from ..engine.events import EngineState, PlanLine, Snapshot
from ..engine.modes import SwitchState
from ..text import clean_line
from . import format as f
from .actions import BY_ID
from .history import RateHistory

Lines = list[Content]
_TRUNK, _KV, _SLOTS, _OTHERS, _FREE = "▓▒█░·"  # cells of the bar of memory
_COUNTED = 32  # cells from which the context's numbers have their unit
_NEARLY = 3  # lines that may be out of sight, and all is shortened nevertheless
_FULL = 0.9  # from here a meter of memory or context is drawn in the warning colour


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, with what stands on its right, and the lines under it; `short`: those that matter most."""

    heading: str
    lines: Lines
    beside: str = ""
    short: Lines | None = None

    def shortened(self) -> Section:
        """With fewer lines, for panels that are not high enough for all."""
        return self if self.short is None else replace(self, lines=self.short)


def panel_sections(snapshot: Snapshot, history: RateHistory, width: int) -> list[Section]:
    """The panel's sections for a width in cells; first what must be seen on short screens, too."""
    last = _columns(width)[1]
    switches = switch_lines(snapshot, width)
    drafts = draft_lines(snapshot, width)
    return [
        memory_section(snapshot, width),
        Section("Expert cache", cache_lines(snapshot, history, width), f"reply{'total':>{last}}"),
        Section("Speed", speed_lines(snapshot, width)),
        Section("Context", context_lines(snapshot, width), _tokens(snapshot, width)),
        Section("Switches", [*switches, _pool_line(snapshot, width)], short=_cut_notes(switches, width)),
        Section("Drafts", drafts, _accepted(snapshot), short=drafts[:1] if _drafts(snapshot) else []),
    ]


def join_sections(sections: Sequence[Section], width: int, height: int) -> Content:
    """One text of all sections, parted by empty lines where these fit, too; shortened where that lets all be seen."""
    need = _height(sections, width)
    short = [section.shortened() for section in sections]
    if need > height >= _height(short, width) - _NEARLY:
        sections = short
    return Content("\n").join(_section_lines(sections, width, need + len(sections) - 1 <= height))


def join_columns(sections: Sequence[Section], width: int, height: int, whole: int) -> Content:
    """The sections in two columns of `width` cells each within `whole` cells, about equally high."""

    def higher(left: int) -> int:
        return max(_height(sections[:left], width), _height(sections[left:], width))

    left = min(range(1, len(sections) + 1), key=higher)
    if higher(left) > height:
        sections = [section.shortened() for section in sections]
        left = min(range(1, len(sections) + 1), key=higher)
    gaps = higher(left) + max(left, len(sections) - left) - 1 <= height
    columns = [_section_lines(part, width, gaps) for part in (sections[:left], sections[left:])]
    gap = " " * (whole - 2 * width)
    rows = zip_longest(*columns, fillvalue=Content())
    return Content("\n").join([Content.assemble(one.pad_right(width - one.cell_length), gap, two) for one, two in rows])


def _height(sections: Sequence[Section], width: int) -> int:
    return sum(1 + sum(1 + (line.cell_length - 1) // width for line in s.lines) for s in sections)


def _section_lines(sections: Sequence[Section], width: int, gaps: bool) -> Lines:
    lines: Lines = []
    for section in sections:
        if lines and gaps:
            lines.append(Content())
        beside = section.beside.rjust(width - len(section.heading))
        lines.append(Content.assemble((section.heading, "bold $primary"), (beside, "$muted")))
        lines.extend(section.lines)
    return lines


def memory_section(snapshot: Snapshot, width: int) -> Section:
    """VRAM, or the arena in RAM where there is no GPU, with its parts; page-locked RAM."""
    memory = snapshot.memory
    if snapshot.model is None:
        return Section("Memory", [pair("no model loaded", f.DASH, width)])
    parts = ((_TRUNK, "trunk", memory.trunk), (_KV, "KV", memory.kv), (_SLOTS, "slots", memory.arena))
    legend = flow(_legend(parts, " "), " ", width)
    if len(legend) > 1:
        legend = flow(_legend(parts, ""), " ", width)
    lines = [_split_bar([(mark, size or 0) for mark, _, size in parts], snapshot, width), *legend]
    lines.append(pair("pinned RAM", f.size(memory.pinned), width))
    rest = pair("pageable, refused", f"{f.size(memory.pageable)}, {f.size(memory.refused)}", width)
    full, short = [*lines, rest], [*lines, rest] if memory.refused else lines
    if memory.on_gpu:
        return Section("VRAM", full, f.size_of(memory.vram_used, memory.vram_total), short)
    return Section("Memory", full, "no GPU: arena in RAM", short)


def _legend(parts: Sequence[tuple[str, str, int | None]], gap: str) -> Lines:
    """What the cells of the bar stand for, and how much each part is."""
    return [
        Content.assemble((mark, "$primary"), (f"{gap}{name} ", "$muted"), f.short_size(size))
        for mark, name, size in parts
    ]


def flow(parts: Iterable[Content], gap: str, width: int) -> Lines:
    """Parts that are not to be broken, as many in a line as there is room for."""
    lines: Lines = []
    for part in parts:
        if lines and lines[-1].cell_length + len(gap) + part.cell_length <= width:
            lines[-1] = Content.assemble(lines[-1], gap, part)
        else:
            lines.append(part)
    return lines


def _split_bar(parts: Sequence[tuple[str, int]], snapshot: Snapshot, width: int) -> Content:
    """What takes the memory, each part in cells of its own kind, then what others use and what is free."""
    memory = snapshot.memory
    if not memory.on_gpu:
        return Content.styled(_cells(parts, sum(size for _, size in parts), width), "$primary")
    used, total = memory.vram_used, memory.vram_total
    if used is None or not total:
        return meter(None, width)
    others = max(0, used - sum(size for _, size in parts))
    text = f.percent(used / total, 0).rjust(6)
    room = max(4, width - len(text))
    style = "$warning" if used / total >= _FULL else "$primary"
    drawn = _cells([*parts, (_OTHERS, others)], total, room)
    return Content.assemble((drawn, style), (_FREE * (room - len(drawn)), "$muted"), text)


def _cells(parts: Sequence[tuple[str, int]], total: int, width: int) -> str:
    """The parts of a total in `width` cells, rounded so that they add up."""
    drawn, sum_ = "", 0
    for mark, size in parts:
        sum_ += size
        drawn += mark * max(0, round(sum_ / max(1, total) * width) - len(drawn))
    return drawn[:width]


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
    """Of the reply: tokens and cost of a window, and the shares of drafts that were accepted, by position."""
    drafts = _drafts(snapshot)
    if drafts is None:
        return [pair("tokens a window", f.DASH, width)]
    cost = drafts.window_cost
    lines = [
        pair("tokens a window", f"{drafts.tokens_per_window:.2f}", width),
        pair("window cost", f.DASH if cost is None else f"{cost:.2f} x plain", width),
    ]
    if sum(drafts.offered):
        shares = (f.percent(a / n, 0) if n else f.DASH for a, n in zip(drafts.accepted, drafts.offered, strict=True))
        lines.append(pair("by position", " ".join(shares), width))
    return lines


def _drafts(snapshot: Snapshot) -> DraftCounters | None:
    """The reply's, once there were windows."""
    drafts = snapshot.reply.drafts if snapshot.reply else None
    return drafts if drafts is not None and drafts.windows else None


def _accepted(snapshot: Snapshot) -> str:
    drafts = _drafts(snapshot)
    if drafts is None:
        return f.DASH
    return f"{f.count(sum(drafts.accepted))} of {f.count(sum(drafts.offered))} accepted"


def context_lines(snapshot: Snapshot, width: int) -> Lines:
    """How full the context is."""
    return [meter(_ratio(snapshot.context_used, snapshot.context_total), width)]


def _tokens(snapshot: Snapshot, width: int) -> str:
    if not snapshot.context_total:
        return f.DASH
    text = f"{f.count(snapshot.context_used)} / {f.count(snapshot.context_total)}"
    return text if width < _COUNTED else f"{text} tokens"


def switch_lines(snapshot: Snapshot, width: int) -> Lines:
    """Each switch: key and name, and what was asked for where that is another than the state in force, which stands on
    the right; then the reason.
    """
    modes = snapshot.modes
    lines: Lines = []
    for action_id, name, state in (
        ("pin", "pinning", modes.pinning if modes else None),
        ("stager", "stager", modes.stager if modes else None),
        ("residency", "residency", modes.residency if modes else None),
        ("draft", "drafts", modes.draft if modes else None),
    ):
        key, value = BY_ID[action_id].keys[0], switch_value(state)
        label = f"{key} {name}"
        if state and state.wanted != value and len(label) + len(state.wanted) + len(value) + 2 <= width:
            label += f" {state.wanted}"
        lines.append(pair(label, value, width))
        lines.extend(_note(_reason(state), width))
    return lines


def _pool_line(snapshot: Snapshot, width: int) -> Content:
    modes = snapshot.modes
    return pair("stage pool built", f"{modes.pool_generation} x" if modes else f.DASH, width)


def _cut_notes(lines: Lines, width: int) -> Lines:
    """The lines with no more than one of each note."""
    kept: Lines = []
    for line in lines:
        if not (line.plain.startswith(" ") and kept and kept[-1].plain.startswith(" ")):
            kept.append(line)
        elif not kept[-1].plain.endswith("…"):
            kept[-1] = Content.assemble(kept[-1].rstrip(), (" …", "$muted")).truncate(width, ellipsis=True)
    return kept


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
    """A label on the left and a value on the right of one line; the label gives way."""
    label = Content(label).truncate(max(1, width - Content(value).cell_length - 1), ellipsis=True).plain
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
