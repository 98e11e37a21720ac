from __future__ import annotations

from dataclasses import replace

from strata_tui.engine.counters import LiveRates, MemoryReport, ReplyStats
from strata_tui.engine.events import EngineState, ModelInfo, PromptProgress, Snapshot
from strata_tui.engine.modes import ModesState, SwitchState
from strata_tui.ui.status_text import Activity, status_text

GIB = 1 << 30
LIVE = Snapshot(
    EngineState.DECODE,
    ModelInfo("/m.gguf", "m", "qwen3moe", "Q4_K_M", 0, 0, 0, 48, 128, 8, 32768, 16384),
    MemoryReport("RTX", True, 21 * GIB, 24 * GIB),
    reply=ReplyStats(reply_tokens=412),
    rates=LiveRates(hit_rate=0.93, decode_tokens_per_second=18.3),
    modes=ModesState(SwitchState("auto", "on", ""), SwitchState("auto", "ram", ""), 1),
    context_used=6712,
    context_total=16384,
)


def test_folded_it_carries_the_panel() -> None:
    shown = status_text(LIVE, Activity(running=True), 80, folded=True).plain
    for part in ("ctx 40 %", "18.3 tok/s", "hit 93 %", "vram 21.0/24.0G", "■ generating"):
        assert part in shown
    assert len(shown) == 80
    idle = status_text(replace(LIVE, state=EngineState.IDLE), Activity(), 80, folded=True).plain
    assert "pin on  stager ram" in idle


def test_a_chosen_switch_shows_setting_and_state() -> None:
    none = SwitchState("on", "not applicable", "not applicable: no GPU")
    modes = ModesState(none, SwitchState("ram", "ram", "chosen"), 2)
    shown = status_text(replace(LIVE, modes=modes, state=EngineState.IDLE), Activity(), 100, folded=True).plain
    assert "pin on:n/a  stager ram" in shown


def test_residency_comes_last_and_goes_first() -> None:
    assert LIVE.modes is not None
    modes = replace(LIVE.modes, residency=SwitchState("adaptive", "adaptive", "adaptive: 1 swaps"))
    idle = replace(LIVE, modes=modes, state=EngineState.IDLE)
    assert "pin on  stager ram  res adaptive" in status_text(idle, Activity(), 100, folded=True).plain
    narrow = status_text(idle, Activity(), 72, folded=True).plain
    assert "pin on  stager ram" in narrow and "res" not in narrow
    pending = replace(modes, residency=SwitchState("frozen", "lru", "", pending=True))
    assert "res frozen:…" in status_text(replace(idle, modes=pending), Activity(), 100, folded=True).plain


def test_beside_the_panel_it_is_about_the_reply() -> None:
    shown = status_text(LIVE, Activity(running=True, seconds=22.5), 120, folded=False).plain
    assert "412 tokens" in shown and "22.5 s" in shown and "esc stops" in shown
    assert "vram" not in shown
    waiting = status_text(LIVE, Activity(running=True, queued=True), 120, folded=False).plain
    assert waiting.endswith(" ■ generating ")  # escape takes the message back, as its line says
    reply = ReplyStats(prompt_tokens=1200, reused_tokens=1024, reply_tokens=5)
    assert "read 176 of 1 200" in status_text(replace(LIVE, reply=reply), Activity(), 120, folded=False).plain
    reading = replace(LIVE, reply=reply, state=EngineState.PROMPT)
    assert "read 176" not in status_text(reading, Activity(running=True), 120, folded=False).plain  # it is not, yet


def test_what_does_not_fit_is_left_out_whole() -> None:
    for width in range(20, 100):
        shown = status_text(LIVE, Activity(running=True), width, folded=True).plain
        assert len(shown) <= max(width, len("  ■ generating ") + 1)
        assert "■ generating" in shown
    narrow = status_text(LIVE, Activity(running=True), 60, folded=True).plain
    assert "18.3 tok/s" in narrow and "stager" not in narrow


def test_states_in_words() -> None:
    def state(snapshot: Snapshot, activity: Activity) -> str:
        return status_text(snapshot, activity, 100, folded=False).plain

    reading = replace(LIVE, state=EngineState.PROMPT)
    assert "reading prompt 120 / 412," in state(reading, Activity(running=True, prompt=PromptProgress(1, 120, 412)))
    slow = PromptProgress(1, 120, 412, 20.0, 1 << 30, 14.6, waiting_for_disk=True)
    assert "waiting for disk 120 / 412, 20.0 tok/s, 14.6 s left," in state(reading, Activity(running=True, prompt=slow))
    assert "stopping…" in state(LIVE, Activity(running=True, stopping=True))
    assert "in another chat" in state(LIVE, Activity(running=True, elsewhere=True))
    assert "loading" in state(Snapshot(), Activity(loading=True))
    assert "no model" in state(Snapshot(), Activity())
    assert "ready" in state(replace(LIVE, state=EngineState.IDLE), Activity())
    assert "failed" in state(Snapshot(EngineState.FAILED), Activity())


def test_without_a_gpu_it_says_where_the_arena_is() -> None:
    shown = status_text(replace(LIVE, memory=MemoryReport("CPU")), Activity(), 100, folded=True).plain
    assert "RAM arena" in shown and "vram" not in shown


def test_the_context_of_another_chat_is_a_dash() -> None:
    idle = replace(LIVE, state=EngineState.IDLE, reply=ReplyStats(prompt_tokens=40, reply_tokens=412))
    shown = status_text(idle, Activity(other=True), 120, folded=True).plain
    assert "ctx –" in shown and "tok/s" not in shown and "hit –" in shown and "read " not in shown
    beside = status_text(idle, Activity(other=True), 120, folded=False).plain
    assert "░ –" in beside and "tokens" not in beside
    assert "18.3 tok/s" in status_text(LIVE, Activity(running=True, other=True), 120, folded=True).plain
