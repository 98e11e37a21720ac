"""The status line's text: a pure function. On narrow screens it carries the engine panel's numbers too."""

from __future__ import annotations

from dataclasses import dataclass, replace

from textual.content import Content

from ..engine.events import EngineState, PromptProgress, Snapshot
from ..engine.modes import SwitchState
from . import format as f
from .panel_text import decode_rate, prompt_rate, switch_value

_STATE_STYLE = {
    EngineState.PROMPT: "$accent",
    EngineState.DECODE: "$accent",
    EngineState.CANCELLING: "$warning",
    EngineState.FAILED: "$error",
}


@dataclass(frozen=True, slots=True)
class Activity:
    """What the chat screen knows beyond the snapshot."""

    running: bool = False
    stopping: bool = False
    prompt: PromptProgress | None = None
    seconds: float | None = None  # since the reply began
    loading: bool = False
    elsewhere: bool = False  # the running reply belongs to another chat
    other: bool = False  # the engine's context and its last reply do
    queued: bool = False  # a message waits in the shown chat: escape takes that back first


def status_text(snapshot: Snapshot, activity: Activity, width: int, folded: bool) -> Content:
    """One line of `width` cells: numbers on the left, what the engine does on the right.

    `folded`: the panel is not beside the chat, so its main numbers stand here. What does not fit is
    left out, the least important first.
    """
    state = state_text(snapshot, activity, folded)
    room = width - state.cell_length - 2
    chosen: list[tuple[int, Content]] = []
    used = 0
    for order, part in sorted(_parts(snapshot, activity, folded), key=lambda item: item[1][0]):
        need = part[1].cell_length + 2
        if used + need <= room:
            chosen.append((order, part[1]))
            used += need
    left = Content("  ").join([part for _, part in sorted(chosen, key=lambda item: item[0])])
    gap = max(1, width - 2 - left.cell_length - state.cell_length)
    return Content.assemble(" ", left, " " * gap, state, " ")


def _reading(prompt: PromptProgress, short: bool) -> str:
    """How far the prompt is, what it waits for, and how long it still takes."""
    what = "waiting for disk" if prompt.waiting_for_disk else "reading prompt"
    text = f"{what} {f.count(prompt.done)} / {f.count(prompt.total)}"
    if prompt.seconds_left is None or prompt.seconds_left < 2 or short:
        return text
    return f"{text}, {f.rate(prompt.tokens_per_second)}, {f.seconds(prompt.seconds_left)} left"


def state_text(snapshot: Snapshot, activity: Activity, short: bool = False) -> Content:
    """What the engine does, in words; `short`: without the key that stops it, which the footer names, too."""
    stops = "" if short or activity.queued else ", esc stops"
    state = snapshot.state
    style = _STATE_STYLE.get(state, "$muted")
    if activity.running:
        where = " in another chat" if activity.elsewhere else ""
        if activity.stopping:
            return Content.styled("■ stopping…", "$warning")
        if state is EngineState.DECODE:
            return Content.styled(f"■ generating{where}{stops}", "$accent")
        if activity.prompt and activity.prompt.total:
            return Content.styled(f"■ {_reading(activity.prompt, short)}{stops}", "$accent")
        return Content.styled(f"■ reading prompt{where}{stops}", "$accent")
    if activity.loading:
        return Content.styled(f"loading{stops}", "$accent")
    if state is EngineState.IDLE:
        return Content.styled("ready", style)
    if state is EngineState.EMPTY:
        return Content.styled("no model", style)
    return Content.styled(state.value, style)


def _parts(snapshot: Snapshot, activity: Activity, folded: bool) -> list[tuple[int, tuple[int, Content]]]:
    """(position, (importance, text)); importance 0 is kept longest."""
    parts: list[tuple[int, Content]] = []
    if activity.other and not activity.running:
        snapshot = replace(snapshot, reply=None)
    if snapshot.context_total:
        ratio = None if activity.other else snapshot.context_used / snapshot.context_total
        style = "$warning" if ratio is not None and ratio >= 0.9 else ""
        meter = "" if folded else f.bar(ratio, 8) + " "
        parts.append((1, Content.assemble("ctx ", (meter + f.percent(ratio, 0), style))))
    if activity.running and snapshot.state is EngineState.PROMPT:
        parts.append((0, Content(f.rate(prompt_rate(snapshot)))))
    elif (rate := decode_rate(snapshot)) is not None:
        parts.append((0, Content(f.rate(rate))))
    if folded and snapshot.model is not None:
        memory = snapshot.memory
        parts.append((3, Content(f"hit {f.percent(_hit(snapshot), 0)}")))
        if memory.on_gpu:
            parts.append((2, Content(f"vram {f.short_size_of(memory.vram_used, memory.vram_total)}")))
        else:
            parts.append((4, Content("RAM arena")))
        if snapshot.modes is not None:
            pinning, stager = _switch(snapshot.modes.pinning), _switch(snapshot.modes.stager)
            parts.append((5, Content(f"pin {pinning}  stager {stager}")))
            if snapshot.modes.residency is not None:
                parts.append((6, Content(f"res {_switch(snapshot.modes.residency)}")))
            if snapshot.modes.draft is not None:
                parts.append((7, Content(f"draft {_switch(snapshot.modes.draft)}")))
    elif not folded and snapshot.reply is not None:
        parts.append((2, Content(f"{f.count(snapshot.reply.reply_tokens)} tokens")))
        if activity.seconds is not None:
            parts.append((3, Content(f.seconds(activity.seconds))))
    if snapshot.reply is not None and snapshot.state is not EngineState.PROMPT:
        read, all_of_it = snapshot.reply.read_tokens, snapshot.reply.prompt_tokens
        parts.append((8 if folded else 4, Content(f"read {f.count(read)} of {f.count(all_of_it)}")))
    return list(enumerate(parts))


def _hit(snapshot: Snapshot) -> float | None:
    if snapshot.state is not EngineState.IDLE and snapshot.rates.hit_rate is not None:
        return snapshot.rates.hit_rate
    return snapshot.reply.counters.decode.hit_rate if snapshot.reply else None


def _switch(state: SwitchState) -> str:
    """The state in force; before it what was asked for, where that is another: "on:n/a"."""
    actual = "n/a" if state.actual == "not applicable" else switch_value(state)
    return actual if state.wanted in (actual, "auto") else f"{state.wanted}:{actual}"
