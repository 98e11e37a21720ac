"""Numbers of replies: their sums, and what is stored of them."""

from __future__ import annotations

import json
from dataclasses import replace

from strata_tui.engine.counters import Counters, DraftCounters, PhaseCounters, ReplyStats

FIRST = ReplyStats(
    prompt_tokens=40,
    reused_tokens=10,
    reply_tokens=11,
    prompt_seconds=0.5,
    first_token_seconds=0.7,
    decode_seconds=1.0,
    counters=Counters(PhaseCounters(picks=8, hits=2), PhaseCounters(picks=10, hits=5), swaps=1),
    context_used=50,
    context_total=64,
    model="m",
    thinking_tokens=4,
    thinking_seconds=0.4,
    drafts=DraftCounters(windows=7, tokens=11, offered=(3, 2, 0, 0), accepted=(2, 2, 0, 0)),
    gate="on",
)
REST = ReplyStats(
    prompt_tokens=51,
    reused_tokens=50,
    reply_tokens=5,
    prompt_seconds=0.1,
    first_token_seconds=0.1,
    decode_seconds=1.0,
    counters=Counters(PhaseCounters(picks=1, hits=1), PhaseCounters(picks=4, hits=4), swaps=2),
    context_used=55,
    context_total=64,
    model="m",
    drafts=DraftCounters(windows=5, tokens=5, offered=(1, 0, 0, 0)),
    gate="off",
)


def test_a_reply_in_two_parts() -> None:
    whole = FIRST.gone_on(REST)
    assert (whole.prompt_tokens, whole.reused_tokens, whole.first_token_seconds) == (40, 10, 0.7)
    assert (whole.reply_tokens, whole.decode_seconds, whole.context_used) == (16, 2.0, 55)
    assert whole.decode_rate == (10 + 4) / 2.0  # the first token of each part came with its prompt
    assert whole.counters == Counters(PhaseCounters(picks=9, hits=3), PhaseCounters(picks=14, hits=9), swaps=3)
    assert whole.drafts == DraftCounters(windows=12, tokens=16, offered=(4, 2, 0, 0), accepted=(2, 2, 0, 0))
    assert whole.gate == "off"
    assert (whole.thinking_tokens, whole.thinking_seconds) == (4, 0.4)
    thrice = whole.gone_on(REST)
    assert thrice.decode_rate == (10 + 4 + 4) / 3.0
    stored = json.loads(json.dumps(thrice.to_dict()))
    assert ReplyStats.from_dict(stored) == thrice
    assert [ReplyStats.from_dict(part) for part in stored["each"]] == [FIRST, REST, REST]


def test_a_part_without_a_token_changes_nothing() -> None:
    nothing = ReplyStats(prompt_tokens=9)
    assert FIRST.gone_on(nothing) == FIRST
    assert nothing.gone_on(REST) == REST


def test_stored_and_read_again() -> None:
    assert ReplyStats.from_dict(FIRST.to_dict()) == FIRST
    old = {k: v for k, v in FIRST.to_dict().items() if not k.startswith("thinking")} | {"unheard_of": 1}
    assert ReplyStats.from_dict(old).thinking_seconds is None


def test_layers_in_two_parts() -> None:
    first, rest = replace(FIRST, layers=((4, 2), (4, 0))), replace(REST, layers=((2, 2), (2, 1)))
    whole = first.gone_on(rest)
    assert whole.layers == ((6, 4), (6, 1))
    assert ReplyStats.from_dict(json.loads(json.dumps(whole.to_dict()))) == whole
    assert first.gone_on(REST).layers == ()  # unknown: the rest has none
