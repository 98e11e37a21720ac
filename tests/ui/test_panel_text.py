from __future__ import annotations

from dataclasses import replace

from strata_tui.engine.counters import Counters, LiveRates, MemoryReport, PhaseCounters, ReplyStats
from strata_tui.engine.events import EngineState, ModelInfo, PlanLine, Snapshot
from strata_tui.engine.modes import ModesState, SwitchState
from strata_tui.ui.format import DASH
from strata_tui.ui.history import RateHistory
from strata_tui.ui.panel_text import join_sections, panel_sections, plan_lines

GIB = 1 << 30
MODEL = ModelInfo("/m.gguf", "m", "qwen3moe", "Q4_K_M", 18 * GIB, GIB, 17 * GIB, 48, 128, 8, 32768, 16384)
GPU = MemoryReport("H200 (CUDA0)", True, 21 * GIB, 24 * GIB, 2 * GIB, 3 * GIB, 16 * GIB, 1408, 1536, 6144, GIB, 0, 0)
CPU = MemoryReport("CPU", False, None, None, GIB, GIB, 5 * GIB, 10, 240, 720, 0, 8 << 20, 4 << 20)
ON = SwitchState("auto", "on", "auto: on, 1.0 GiB page-locked")
RAM = SwitchState("auto", "ram", "auto: ram, 98 % of sampled pages cached")
REPLY = ReplyStats(
    prompt_tokens=100,
    reused_tokens=20,
    reply_tokens=11,
    prompt_seconds=0.5,
    first_token_seconds=0.94,
    decode_seconds=2.0,
    counters=Counters(PhaseCounters(), PhaseCounters(picks=1000, hits=931, misses=69, evictions=60)),
)
LIVE = Snapshot(
    EngineState.DECODE,
    MODEL,
    GPU,
    Counters(PhaseCounters(), PhaseCounters(picks=20000, hits=15000, misses=5000, evictions=4900)),
    REPLY,
    LiveRates(hit_rate=0.871, decode_tokens_per_second=18.3, evictions_per_second=42.0),
    ModesState(ON, RAM, 3),
    6712,
    16384,
)


def text(snapshot: Snapshot, width: int = 36, history: RateHistory | None = None) -> str:
    return join_sections(panel_sections(snapshot, history or RateHistory(), width), width, 100).plain


def line(label: str, shown: str) -> str:
    """The first line that starts with this label, without the runs of blanks."""
    return next(" ".join(x.split()) for x in shown.splitlines() if x.startswith(label))


def test_numbers_of_a_gpu() -> None:
    shown = text(LIVE)
    assert line("VRAM", shown) == "VRAM 21.0 / 24.0 GiB"
    assert line("▓", shown.replace("▓▓", "")) == "▓ trunk 2.0G ▒ KV 3.0G █ slots 16.0G"
    assert line("pinned", shown) == "pinned RAM 1.0 GiB"
    assert line("hit, prompt", shown) == f"hit, prompt {DASH} {DASH}"
    assert line("hit, decode", shown) == "hit, decode 93.1 % 75.0 %"
    assert line("hits", shown) == "hits 931 15 000"
    assert line("misses", shown) == "misses 69 5 000"
    assert line("evictions", shown) == "evictions 60 4 900"
    assert line("swaps", shown) == f"swaps {DASH} {DASH}"
    assert line("hit, 1 s", shown) == "hit, 1 s 87.1 %"
    assert line("evicted", shown) == "evicted 42.0 /s"
    assert line("slots used", shown) == "slots used 1 408 / 1 536"
    assert line("prompt", shown) == "prompt 160.0 tok/s"
    assert line("decode", shown) == "decode 18.3 tok/s"
    assert line("first token", shown) == "first token 0.94 s"
    assert line("Context", shown) == "Context 6 712 / 16 384 tokens"
    assert "40 %" in shown and "87 %" in shown


def test_a_finished_reply_shows_its_mean_and_not_the_last_second() -> None:
    shown = text(replace(LIVE, state=EngineState.IDLE))
    assert line("decode", shown) == "decode 5.0 tok/s"


def test_without_a_gpu_it_says_so() -> None:
    shown = text(replace(LIVE, memory=CPU))
    assert line("Memory", shown) == "Memory no GPU: arena in RAM"
    assert "VRAM" not in shown
    assert line("pageable", shown) == "pageable, refused 8.0 MiB, 4.0 MiB"


def test_before_a_model_everything_is_unknown() -> None:
    shown = text(Snapshot())
    for name in ("f6", "f7", "f8", "f9", "1 s"):
        shown = shown.replace(name, "")
    assert not any(c.isdigit() for c in shown)
    for label in ("hit", "hits", "misses", "evictions", "swaps", "prompt", "decode", "first token", "Context"):
        assert DASH in line(label, shown)


def test_a_model_without_a_reply_has_dashes_for_the_reply() -> None:
    shown = text(replace(LIVE, reply=None, counters=Counters(), rates=LiveRates()))
    assert line("hits", shown) == f"hits {DASH} 0"
    assert line("hit, decode", shown) == f"hit, decode {DASH} {DASH}"
    assert line("decode", shown) == f"decode {DASH}"


def test_counted_swaps_are_numbers() -> None:
    shown = text(replace(LIVE, counters=replace(LIVE.counters, swaps=0)))
    assert line("swaps", shown) == f"swaps {DASH} 0"


def test_a_dense_model_has_no_experts() -> None:
    shown = text(replace(LIVE, model=replace(MODEL, experts_per_layer=0, experts_used=0)))
    assert "dense model: no experts" in shown


def test_switches_show_the_state_and_the_reason() -> None:
    shown = text(LIVE)
    assert line("f7", shown) == "f7 pinning auto on"
    assert line("f8", shown) == "f8 stager auto ram"
    assert "\n  98 % of sampled pages cached\n" in shown
    assert line("stage pool", shown) == "stage pool built 3 x"


def test_the_residency_line() -> None:
    adaptive = SwitchState("adaptive", "adaptive", "adaptive: 123 swaps, 0.01 ms a round")
    shown = text(replace(LIVE, modes=ModesState(ON, RAM, 3, adaptive)))
    assert line("f9", shown) == "f9 residency adaptive"
    assert "\n  123 swaps, 0.01 ms a round\n" in shown
    dense = SwitchState("lru", "not applicable", "not applicable: no experts")
    shown = text(replace(LIVE, modes=ModesState(ON, RAM, 3, dense)))
    assert line("f9", shown) == "f9 residency lru not applicable"
    assert line("f9", text(LIVE)) == f"f9 residency {DASH}"  # unknown


def test_a_pending_switch_never_shows_the_wish_as_the_state() -> None:
    pending = SwitchState("off", "on", "auto: on", pending=True)
    shown = text(replace(LIVE, modes=ModesState(pending, RAM, 3)))
    assert line("f7", shown) == "f7 pinning off …"
    assert "from the next round on" in shown


def test_a_switch_that_means_nothing_says_why() -> None:
    state = SwitchState("auto", "not applicable", "not applicable: no GPU")
    shown = text(replace(LIVE, modes=ModesState(state, RAM, 1)))
    assert line("f7", shown) == "f7 pinning auto not applicable"
    assert "\n  no GPU\n" in shown


def test_sparklines_follow_the_history() -> None:
    history = RateHistory()
    history.add(LIVE)
    history.add(replace(LIVE, rates=LiveRates(hit_rate=0.5, evictions_per_second=84.0)))
    history.add(replace(LIVE, state=EngineState.IDLE))  # nothing to record
    shown = text(LIVE, history=history)
    assert "▆▄ " in line("hit, 1 s", shown) + " "
    assert "▄▇" in line("evicted", shown)
    history.clear()
    assert "▆" not in text(LIVE, history=history)


def test_no_line_is_wider_than_the_panel() -> None:
    for snapshot in (LIVE, replace(LIVE, memory=CPU), Snapshot()):
        for width in (36, 44):
            for section in panel_sections(snapshot, RateHistory(), width):
                assert max(x.cell_length for x in section.lines) <= width, section.heading


def test_gaps_only_where_they_fit() -> None:
    sections = panel_sections(LIVE, RateHistory(), 36)
    assert "\n\n" in join_sections(sections, 36, 60).plain
    assert "\n\n" not in join_sections(sections, 36, 20).plain


def test_the_plan_is_a_table() -> None:
    plan = (PlanLine("trunk", 2 * GIB, "from the file"), PlanLine("mirror", None, "unknown: " + "long words " * 12))
    shown = [x.plain for x in plan_lines(plan, 60)]
    assert shown[0] == "trunk     2.0 GiB  from the file"
    assert shown[1].startswith(f"mirror          {DASH}  unknown: long words")
    assert len(shown) > 3 and max(map(len, shown)) <= 60


def test_a_plan_can_be_drawn_at_any_width() -> None:
    plan = (PlanLine("slots", 1 << 30, "22 of 64 experts"),)
    for width in range(1, 40):
        assert plan_lines(plan, width)
