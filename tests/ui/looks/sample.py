"""The chats in the pictures, and the numbers of a GPU: fixed, and as people have them."""

from __future__ import annotations

import time

from strata_tui.engine.counters import Counters, DraftCounters, LiveRates, MemoryReport, PhaseCounters, ReplyStats
from strata_tui.engine.events import EngineState, ModelInfo, Snapshot
from strata_tui.engine.modes import ModesState, SwitchState
from strata_tui.sessions.portable import PortableChat, PortableMessage
from strata_tui.sessions.rows import Role, Status

MODEL = "Qwen3-30B-A3B Q4_K_M"
GIB, MIB = 1 << 30, 1 << 20
_MINUTE, _DAY = 60.0, 86400.0

CODE = '''The experts used by the first prompt are still resident, so the second run begins with a warm \
cache. You can see it in the counters:

```python
from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """Picks of one phase; a hit is a pick whose expert was resident."""

    hits: int
    picks: int

    @property
    def hit_rate(self) -> float | None:
        return self.hits / self.picks if self.picks else None


print(f"{Phase(1893, 2048).hit_rate:.1%}")  # 92.4%
```

Three things follow from that:

1. The **first** reply after a start is the slowest. A usage profile fills the slots before it.
2. With `residency = "adaptive"` the slots follow what is picked *most*, not what was picked last:
   - swaps happen between rounds, never inside one;
   - a swap costs about 0.1 ms of host time.
3. Past 98 % of hits more slots bring little. See [the memory plan](https://example.org/plan).

```bash
strata-tui -m Qwen3-30B-A3B-Q4_K_M.gguf --slots 3072 --residency adaptive --log /tmp/engine.log
```

> A hit rate is a property of a text and a model, not of the cache alone.'''

TABLE = """Here are the numbers of one run, half the experts in VRAM:

| arm | decode | hits | note |
| :-- | --: | --: | :-- |
| all in VRAM | 314.4 tok/s | – | llama.cpp, the bound |
| half the slots, mirror | 159.2 tok/s | 89.9 % | pinned RAM behind the slots |
| half the slots, file | 72.0 tok/s | 89.9 % | page cache, through the stage pool |
| experts on the CPU | 69.6 tok/s | – | llama.cpp, no mmap |

and the same words in other scripts, which are two cells wide:

| 日本語 | 中文 | 한국어 |
| :-- | :-: | --: |
| 専門家 | 专家 | 전문가 |
| 鏡 | 镜像 | 거울 |

東京の天気は晴れです。Café, naïve, Ångström and \\(x^2 + y^2 = r^2\\) keep their places."""

THINKING = """The user compares two runs of the same prompt. The second one starts faster.

What differs? Not the prompt, and not the KV cache, for the chat is a new one. The slots keep the experts that the \
first run brought in. So the misses of the first run are hits in the second.

I should mention that the profile survives a restart, and name the counters that show it."""


def _stats(seconds: float, tokens: int, *, thinking: int = 0) -> dict[str, object]:
    picks = tokens * 48 * 8
    decode = PhaseCounters(picks=picks, hits=int(picks * 0.931), misses=picks - int(picks * 0.931), evictions=310)
    stats = ReplyStats(
        prompt_tokens=612,
        reused_tokens=480,
        reply_tokens=tokens,
        prompt_seconds=0.31,
        first_token_seconds=0.34,
        decode_seconds=seconds,
        counters=Counters(decode=decode),
        context_used=6712,
        context_total=16384,
        model=MODEL,
        thinking_tokens=thinking,
        thinking_seconds=6.1 if thinking else None,
    )
    return stats.to_dict()


def _message(parent: int | None, role: Role, text: str, at: float, **more: object) -> PortableMessage:
    if role is Role.ASSISTANT:
        more = {"model": MODEL, "stats": _stats(9.4, 172), **more}
    return PortableMessage(parent, role, text, at, at, **more)  # type: ignore[arg-type]


def long_chat(now: float) -> PortableChat:
    """Every kind of message: code, a table, wide scripts, thinking, branches, one that was stopped, one that failed."""
    user, reply = Role.USER, Role.ASSISTANT
    at = [now - _MINUTE * (40 - 3 * n) for n in range(14)]
    messages = (
        _message(None, user, "Why does the second run of the same prompt start faster?", at[0]),
        _message(0, reply, "Because of the cache.", at[1]),
        _message(0, reply, CODE, at[2], thinking=THINKING, stats=_stats(9.4, 412, thinking=198)),
        _message(0, reply, "It does not have to read the prompt again.", at[3], status=Status.STOPPED),
        _message(2, user, "Show me numbers.\n\nAs a table, please, and with 日本語 in it.", at[4]),
        _message(4, reply, TABLE, at[5]),
        _message(5, user, "And if I halve the slots once more?", at[6]),
        _message(5, user, "And what does the mirror cost?", at[7]),
        _message(6, reply, "Then about", at[8], status=Status.STOPPED),
        _message(8, user, "Go on.", at[9]),
        _message(
            9,
            reply,
            "",
            at[10],
            status=Status.ERROR,
            stats=None,
            note="The prompt has 17 020 tokens and the context 16 384: fork from an earlier message or raise --ctx.",
        ),
        _message(10, user, "In one sentence?", at[11]),
        _message(
            11,
            reply,
            "Each halving of the slots costs a little less than the one before, because the experts that are picked "
            "most keep theirs: 93 % of hits with half of them, 81 % with a quarter.",
            at[12],
        ),
    )
    return PortableChat("Tensor layouts, continued", at[0], at[12], messages, 12, model=MODEL)


def _small(title: str, age: float, now: float, *texts: str, pinned: bool = False) -> PortableChat:
    at = now - age
    messages = tuple(
        _message(n - 1 if n else None, Role.ASSISTANT if n % 2 else Role.USER, text, at) for n, text in enumerate(texts)
    )
    return PortableChat(title, at, at, messages, len(texts) - 1, model=MODEL, pinned=pinned)


def other_chats(now: float) -> list[PortableChat]:
    """What else is in the list."""
    hour = 60 * _MINUTE
    ask, answer = "What keeps an expert in its slot?", "Its home, as long as it is picked more than the others."
    return [
        _small("House rules for prompts", 9 * _DAY, now, ask, answer, pinned=True),
        _small("Cache slot sizing for a card with 12 GiB and a slow link", 2 * hour, now, ask, answer, ask, answer),
        _small("Prompt for the README", 3 * hour, now, "Write one sentence about a cache.", "It remembers."),
        _small("東京への旅行の計画と予算", _DAY, now, "東京で一日、どこへ行きますか。", "浅草、上野、そして谷中です。"),
        _small("Rust lifetimes", _DAY + hour, now, "What is a lifetime?", "How long a reference may be used."),
        _small("Kraków in three days", 2 * _DAY, now, "Where to eat?", "Near the market, but not on it."),
        _small(
            "SQLite and full-text search", 6 * _DAY, now, "How does FTS5 rank?", "By BM25, so rare words count more."
        ),
        _small(
            "Slots, arenas, mirrors", 15 * _DAY, now, "What is a mirror?", "Pinned RAM that holds a copy of a slot."
        ),
        _small("Dinner for six", 30 * _DAY, now, "Something with lentils?", "Mujaddara: lentils, rice, onions."),
        _small("A letter to the landlord", 61 * _DAY, now, "Politely, please.", "Dear Ms Example, the heating …"),
        _small("Pocket knife sharpening", 90 * _DAY, now, "Which angle?", "About 20 degrees a side."),
    ]


def deleted_chats(now: float) -> list[PortableChat]:
    """What is in the bin."""
    return [
        _small("Old drafts of a talk", 40 * _DAY, now, "Shorter.", "Yes."),
        _small("Test", 41 * _DAY, now, "test", "Hello."),
    ]


def gpu_snapshot(state: EngineState = EngineState.DECODE) -> Snapshot:
    """Numbers as one card with half the slots and a mirror gives them. They fill the panel; they are no measurement."""
    model = ModelInfo(
        "/models/Qwen3-30B-A3B-Q4_K_M.gguf",
        "Qwen3-30B-A3B",
        "qwen3moe",
        "Q4_K_M",
        17_100_000_000,
        821 * MIB,
        int(15.1 * GIB),
        48,
        128,
        8,
        32768,
        16384,
    )
    decode = PhaseCounters(picks=49152, hits=44187, misses=4965, loads=4965, loads_mirror=4965, evictions=4960)
    prompt = PhaseCounters(picks=786432, hits=402653, misses=383779, evictions=0, streamed=3072, moved=3060)
    reply = ReplyStats(
        prompt_tokens=2048,
        reply_tokens=128,
        prompt_seconds=0.173,
        first_token_seconds=0.181,
        decode_seconds=0.804,
        counters=Counters(prompt, decode, 214),
        context_used=6712,
        context_total=16384,
        drafts=DraftCounters(60, 41, 128, (41, 41, 30, 12), (33, 25, 9, 1), 10, 900, 400),
    )
    memory = MemoryReport(
        "NVIDIA H200 (CUDA0)",
        True,
        int(11.9 * GIB),
        int(24.0 * GIB),
        821 * MIB,
        int(1.5 * GIB),
        int(7.6 * GIB),
        3072,
        3072,
        6144,
        int(7.7 * GIB),
        0,
        0,
        int(7.6 * GIB),
    )
    modes = ModesState(
        SwitchState("auto", "on", "auto: 24.6 GiB of RAM stay available"),
        SwitchState("auto", "ram", "auto: 98 % of sampled pages cached"),
        3,
        SwitchState("adaptive", "adaptive", "214 swaps"),
        SwitchState("auto", "2", "auto: 1.31 x plain, measured"),
    )
    return Snapshot(
        state=state,
        model=model,
        memory=memory,
        counters=Counters(prompt, decode, 214),
        reply=reply,
        rates=LiveRates(0.902, 159.2, None, 4.1e9, 61.0),
        modes=modes,
        context_used=6712,
        context_total=16384,
    )


def now() -> float:
    """Two in the afternoon of this day, so that what is some hours old is of this day, too."""
    local = time.localtime()
    return time.mktime((*local[:3], 14, 2, 0, 0, 0, -1))
