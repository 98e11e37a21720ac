from __future__ import annotations

from dataclasses import replace

from strata_tui.engine.counters import Counters, DraftCounters, LiveRates, MemoryReport, PhaseCounters, ReplyStats
from strata_tui.engine.events import EngineState, ModelInfo, PlanLine, Snapshot
from strata_tui.engine.modes import ModesState, SwitchState
from strata_tui.ui.format import DASH
from strata_tui.ui.history import RateHistory
from strata_tui.ui.keymap import resolve_keys
from strata_tui.ui.panel_parts import join_sections
from strata_tui.ui.panel_text import panel_sections, plan_lines

GIB = 1 << 30
MODEL = ModelInfo("/m.gguf", "m", "qwen3moe", "Q4_K_M", 18 * GIB, GIB, 17 * GIB, 48, 128, 8, 32768, 16384)
GPU = MemoryReport(
    "H200 (CUDA0)",
    on_gpu=True,
    vram_used=22 * GIB,
    vram_total=24 * GIB,
    trunk=2 * GIB,
    kv=3 * GIB,
    arena=16 * GIB,
    slots_used=1408,
    slots_total=1536,
    experts_total=6144,
    pinned=9 * GIB,
    mirror=8 * GIB,
    reserve=GIB // 2,
)
CPU = MemoryReport(
    "CPU",
    trunk=GIB,
    kv=GIB,
    arena=5 * GIB,
    slots_used=10,
    slots_total=240,
    experts_total=720,
    pageable=8 << 20,
    refused=4 << 20,
    process_rss=7 * GIB,
    reserve=2 * GIB,
)
ON = SwitchState("auto", "on", "auto: on, 1.0 GiB page-locked")
RAM = SwitchState("auto", "ram", "auto: ram, 98 % of sampled pages cached")
REPLY = ReplyStats(
    prompt_tokens=1280,
    reused_tokens=1200,
    reused_ram=1200,
    read_again=12,
    reply_tokens=11,
    prompt_seconds=0.5,
    first_token_seconds=0.94,
    decode_seconds=2.0,
    counters=Counters(
        PhaseCounters(streamed=7),
        PhaseCounters(
            picks=1000, hits=931, misses=69, loads_mirror=40, loads_staged=20, evictions=60, bytes_direct=GIB
        ),
    ),
    layers=((100, 90), (100, 50), (0, 0), (10, 10)),
)
LIVE = Snapshot(
    EngineState.DECODE,
    MODEL,
    GPU,
    Counters(PhaseCounters(), PhaseCounters(picks=20000, hits=15000, misses=5000, evictions=4900)),
    REPLY,
    LiveRates(0.871, decode_tokens_per_second=18.3, bytes_per_second=3.0 * GIB, evictions_per_second=42.0),
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
    assert line("VRAM", shown) == "VRAM 22.0 / 24.0 GiB"
    assert line("▓trunk", shown) == "▓trunk 2.0G ▒KV 3.0G █slots 16.0G"
    assert line("░other", shown) == "░other 1.0G reserve 512M"
    assert line("pinned", shown) == "pinned mirror 8.0G stage pool 1.0G"
    assert line("pageable", shown) == "pageable 0 refused 0"
    assert line("hit, prompt", shown) == f"hit, prompt {DASH} {DASH}"
    assert line("hit, decode", shown) == "hit, decode 93.1 % 75.0 %"
    assert line("hits", shown) == "hits 931 15 000"
    assert line("misses", shown) == "misses 69 5 000"
    assert line("evictions", shown) == "evictions 60 4 900"
    assert line("from mirror", shown) == "from mirror 40 0"
    assert line("from file", shown) == "from file 20 0"
    assert line("streamed", shown) == "streamed 7 0"
    assert line("past cache", shown) == "past cache 1.0G 0"
    assert line("swaps", shown) == f"swaps {DASH} {DASH}"
    assert line("hit, 1 s", shown) == "hit, 1 s 87.1 %"
    assert line("copied", shown) == "copied 3.0G/s"
    assert line("evicted", shown) == "evicted, 1 s 42.0/s"
    assert line("hit by layer", shown) == "hit by layer, least 50.0 %"
    assert "\n▆▄ ▇\n" in shown
    assert line("slots used", shown) == "slots used 1 408 / 1 536"
    assert line("prompt", shown) == "prompt 160.0 tok/s"
    assert line("decode", shown) == "decode 18.3 tok/s"
    assert line("Speed", shown) == "Speed first token 0.94 s"
    assert line("Context", shown) == "Context 6 712 / 16 384"
    assert line("prompt: reused", shown) == "prompt: reused 1 200 from RAM"
    assert line("prompt: read", shown).endswith("again 12")
    assert "40 %" in shown and "91 %" in shown


def test_a_finished_reply_shows_its_mean_and_not_the_last_second() -> None:
    shown = text(replace(LIVE, state=EngineState.IDLE))
    assert line("decode", shown) == "decode 5.0 tok/s"


def test_where_reused_tokens_come_from() -> None:
    for reply, expected in (
        (replace(REPLY, reused_ram=0, reused_disk=1200), "1 200 from disk"),
        (replace(REPLY, reused_ram=0, reused_disk=0), "1 200"),
        (replace(REPLY, reused_ram=None), "1 200"),
        (None, DASH),
    ):
        assert line("prompt: reused", text(replace(LIVE, reply=reply))) == f"prompt: reused {expected}"
    assert line("prompt: read", text(replace(LIVE, reply=replace(REPLY, read_again=None)))).endswith(f"again {DASH}")
    memory = replace(GPU, snapshots_ram=105 << 20, snapshots_disk=5 << 29)
    assert line("KV snapshots", text(replace(LIVE, memory=memory))) == "KV snapshots: RAM 105M disk 2.5G"


def test_without_a_gpu_it_says_so() -> None:
    shown = text(replace(LIVE, memory=CPU))
    assert line("Memory", shown) == "Memory no GPU: slots in RAM"
    assert "VRAM" not in shown and "other" not in shown
    assert line("process", shown) == "process 7.0G reserve 2.0G"
    assert line("pageable", shown) == "pageable 8.0M refused 4.0M"


def test_what_is_not_known_of_the_vram_is_a_dash() -> None:
    memory = replace(GPU, vram_used=None, vram_total=None)
    assert line("░other", text(replace(LIVE, memory=memory))) == f"░other {DASH} reserve 512M"
    assert line("░other", text(replace(LIVE, memory=replace(GPU, kv=None)))).startswith(f"░other {DASH}")


def test_before_a_model_everything_is_unknown() -> None:
    shown = text(Snapshot())
    for name in ("f6", "f7", "f8", "f9", "1 s"):
        shown = shown.replace(name, "")
    assert not any(c.isdigit() for c in shown)
    labels = ("Memory", "hit", "hits", "misses", "from mirror", "from file", "swaps", "copied", "evicted", "slots used")
    for label in (*labels, "prompt", "decode", "Speed", "Context", "prompt: ", "Drafts", "stage pool built"):
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


def test_switches_name_the_keys_of_the_person() -> None:
    keymap = resolve_keys({"pin": ("ctrl+k",), "stager": ()})
    shown = join_sections(panel_sections(LIVE, RateHistory(), 36, keymap), 36, 100).plain
    assert line("^k", shown) == "^k pinning auto on"
    assert line("/stager", shown) == "/stager stager auto ram"
    assert line("Switches", shown) == "Switches from the next round on"


def test_the_residency_line() -> None:
    adaptive = SwitchState("adaptive", "adaptive", "adaptive: 123 swaps, 0.01 ms a round")
    shown = text(replace(LIVE, modes=ModesState(ON, RAM, 3, adaptive)))
    assert line("f9", shown) == "f9 residency adaptive adaptive"
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
    history.add(replace(LIVE, rates=LiveRates(hit_rate=0.5, bytes_per_second=6.0 * GIB)))
    history.add(replace(LIVE, state=EngineState.IDLE))  # nothing to record
    shown = text(LIVE, history=history)
    assert "▆▄ " in line("hit, 1 s", shown) + " "
    assert "▄▇" in line("copied", shown)
    history.clear()
    assert "▆" not in text(replace(LIVE, reply=None), history=history)


def test_no_line_is_wider_than_the_panel() -> None:
    drafts = DraftCounters(9999, 5000, 20000, (9000, 8000, 7000, 6000), (9000, 7000, 5000, 3000), 1, 2, 3)
    busy = replace(LIVE, reply=replace(REPLY, drafts=drafts, layers=((9, 8),) * 61))
    for snapshot in (LIVE, busy, replace(LIVE, memory=CPU), Snapshot()):
        for width in (36, 44):
            for section in panel_sections(snapshot, RateHistory(), width):
                assert all(row.text.cell_length <= width for row in section.rows), section.heading
                assert len(section.heading) + len(section.beside) < width, section.heading


def test_gaps_only_where_they_fit() -> None:
    sections = panel_sections(LIVE, RateHistory(), 36)
    assert "\n\n" in join_sections(sections, 36, 60).plain
    assert "\n\n" not in join_sections(sections, 36, 38).plain


def test_on_a_short_panel_the_least_important_is_left_out() -> None:
    drafts = DraftCounters(10, 5, 15, (5, 0, 0, 0), (4, 0, 0, 0), 1, 2, 3)
    sections = panel_sections(replace(LIVE, reply=replace(REPLY, drafts=drafts)), RateHistory(), 36)
    heights = {height: join_sections(sections, 36, height).plain for height in range(60, 10, -1)}
    assert all(shown.count("\n") < height for height, shown in heights.items() if height >= 20)
    labels = ("hit by layer", "stage pool built", "from mirror")
    gone = [next(h for h, shown in heights.items() if label not in shown) for label in labels]
    assert gone == sorted(gone, reverse=True) and gone[0] > gone[2]
    assert all("98 % of sampled" in shown for height, shown in heights.items() if height >= 31), "the stager's reason"
    least = heights[11]
    for kept in ("VRAM", "▓trunk", "hit, decode", "hit, 1 s", "decode", "Context", "f7 pinning", "4 of 5 accepted"):
        assert kept in least
    assert "hit by layer" in join_sections(sections, 36, 11, whole=True).plain


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


def test_a_sentence_is_cut_behind_a_word() -> None:
    long = SwitchState("auto", "ram", "auto: ram, 32 of 32 reads cached; 1 thread, ring 24")
    sections = panel_sections(replace(LIVE, modes=ModesState(ON, long, 1)), RateHistory(), 35)
    shown = [join_sections(sections, 35, height).plain for height in range(60, 20, -1)]
    assert any("\n  32 of 32 reads cached; 1 thread,\n  ring 24\n" in one for one in shown)
    assert any("\n  32 of 32 reads cached; 1 thread…\n" in one for one in shown)


def test_values_beside_one_another_are_two_blanks_apart() -> None:
    memory = replace(GPU, trunk=81 << 20, arena=193 * GIB // 10, mirror=151 * GIB // 10, pinned=152 * GIB // 10)
    assert "\npinned mirror 15.1G  stage pool 102M\n" in text(replace(LIVE, memory=memory))
    assert "\n▓trunk 81.0M  ▒KV 3.0G\n█slots 19.3G\n" in text(replace(LIVE, memory=memory), 27)


def test_a_sentence_that_is_cut_says_so() -> None:
    long = SwitchState("auto", "ram", "auto: ram, 98 % of sampled pages cached; and then a good deal more of it")
    sections = panel_sections(replace(LIVE, modes=ModesState(ON, long, 1)), RateHistory(), 36)
    assert "\n  98 % of sampled pages cached; and\n  then a good" in join_sections(sections, 36, 60).plain
    shown = [join_sections(sections, 36, height).plain for height in range(60, 20, -1)]
    assert any("\n  98 % of sampled pages cached; and…" in one for one in shown)
    for one in shown:
        assert ("pages cached; and\n" in one) == ("\n  then a good" in one)
