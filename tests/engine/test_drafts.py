"""Drafts in replies of the engine: same text, all ways to end, the switch, its reasons and counters."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from model_fixtures import TinyModel
from talk import GREEDY, fresh, messages, talk

from strata_tui.engine.counters import ReplyStats
from strata_tui.engine.events import FinishReason, ModesChanged, Sampling, TextDelta
from strata_tui.engine.modes import Drafting, Modes
from strata_tui.engine.speculate import LOOKUP

TURN = "the people of water said that their expert could find a long way"
LONG = Sampling(temperature=0, repeat_penalty=1.0, max_tokens=64)
ALWAYS, OFF = Modes(draft=Drafting.FOUR), Modes(draft=Drafting.OFF)


@pytest.mark.parametrize("name", ["qwen3moe", "qwen3next", "glm4moe", "glm4moe_echo", "llama_dense"])
def test_the_text_is_the_same(name: str, tiny_model: TinyModel) -> None:
    expected = fresh(tiny_model(name), [TURN], LONG, modes=OFF)
    with talk(tiny_model(name), modes=ALWAYS) as session:
        answer = session.ask(TURN, sampling=LONG)
        again = session.ask(TURN, answer.text, TURN, sampling=LONG)
    assert answer.text == expected
    assert again.text == fresh(tiny_model(name), [TURN, answer.text, TURN], LONG, modes=OFF)
    drafts = answer.done.stats.drafts
    assert drafts is not None
    ended = answer.reason is FinishReason.STOP  # by a token that is no text
    assert drafts.tokens == answer.done.stats.reply_tokens - 1 + ended, "the first is from the prompt"
    assert sum(drafts.offered) > 0


@pytest.mark.parametrize("limit", range(1, 9))
def test_a_limit_inside_a_window(limit: int, tiny_model: TinyModel) -> None:
    sampling = Sampling(temperature=0, repeat_penalty=1.0, max_tokens=limit)
    with talk(tiny_model("glm4moe_echo"), modes=ALWAYS) as session:
        answer = session.ask(TURN, sampling=sampling)
    assert answer.reason is FinishReason.LENGTH
    assert answer.done.stats.reply_tokens == limit
    assert answer.text == fresh(tiny_model("glm4moe_echo"), [TURN], sampling, modes=OFF)


def test_a_context_that_fills(tiny_model: TinyModel) -> None:
    sampling = Sampling(temperature=0, repeat_penalty=1.0)
    with talk(tiny_model("glm4moe_echo"), modes=ALWAYS, context=256) as session:
        answer = session.ask(TURN, sampling=sampling)
    assert answer.reason is FinishReason.FULL
    assert answer.done.stats.context_used == 256
    assert answer.text == fresh(tiny_model("glm4moe_echo"), [TURN], sampling, modes=OFF, context=256)


def test_cancels_and_switches_at_any_time_leave_no_trace(tiny_model: TinyModel) -> None:
    """From another thread than the one that decodes. (Turns of all kinds: test_drafts_turns.py.)"""
    rng = random.Random(3)
    path = tiny_model("glm4moe_echo")
    with talk(path, modes=ALWAYS, context=512) as session:
        for _ in range(60):
            conversation = [TURN[: rng.randrange(8, 60)] for _ in range(rng.choice((1, 1, 3)))]
            if rng.random() < 0.2:
                session.engine.set_modes(Modes(draft=rng.choice(list(Drafting))))
            sampling = Sampling(temperature=0, repeat_penalty=1.0, max_tokens=rng.randrange(1, 16))
            reply = session.engine.generate(messages(*conversation), sampling)
            if rng.random() < 0.3:
                if rng.random() < 0.5:
                    session.wait(lambda e: isinstance(e, TextDelta))
                session.engine.cancel(reply)
            assert session.answer(reply).reason in (FinishReason.LENGTH, FinishReason.STOP, FinishReason.CANCELLED)
        session.engine.set_modes(ALWAYS)
        last = session.ask(*conversation, sampling=LONG)
    with talk(path, modes=ALWAYS, context=512) as session:
        alone = session.ask(*conversation, sampling=LONG)
    assert last.text == alone.text
    assert last.done.stats.context_used == alone.done.stats.context_used


def test_the_switch_says_what_it_does(tiny_model: TinyModel) -> None:
    with talk(tiny_model("qwen3moe")) as session:
        before = session.engine.snapshot().modes
        for wanted, actual, words in (
            (Drafting.OFF, "off", "chosen"),
            (Drafting.TWO, "on", "look-up; the model has no NextN heads"),
        ):
            session.engine.set_modes(Modes(draft=wanted))
            changed = session.wait(lambda e: isinstance(e, ModesChanged))[-1]
            assert isinstance(changed, ModesChanged) and changed.state.draft is not None
            assert before and changed.state.pool_generation == before.pool_generation, "the stage pool is left alone"
            assert (changed.state.draft.wanted, changed.state.draft.actual) == (wanted.value, actual)
            assert words in changed.state.draft.reason


def test_a_drafter_pays_after_some_drafts_of_which_some_were_right(tiny_model: TinyModel) -> None:
    with talk(tiny_model("qwen3moe")) as session:
        opened = session.engine._worker._opened
        assert opened is not None
        for right, offered, verdict in (
            (0, 2, "is being tried"),
            (2, 2, "is being tried"),
            (0, 20, "is being tried"),
            (5, 8, "pays"),
        ):
            opened.speculation._recent = LOOKUP
            opened.speculation._first[LOOKUP] = right, offered
            reason = opened.speculation.state().reason
            assert reason.startswith(f"on: look-up {verdict} ({right} of {offered} first drafts right)")


@pytest.mark.parametrize("name", ["glm4moe", "glm4moe_nan"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_broken_heads_are_off_within_64_tokens(name: str, temperature: float, tiny_model: TinyModel) -> None:
    """Random ones, whose drafts cost time that no token pays back, and ones that give no numbers."""
    sampling = replace(LONG, temperature=temperature, seed=3)
    with talk(tiny_model(name), lookup=False) as session:
        answer = session.ask(TURN, sampling=sampling)
        state = session.engine.snapshot().modes
        assert state and state.draft
        assert state.draft.actual == "off"
        assert re.match(
            r"off: NextN does not pay \((0 of \d+ first drafts right|its drafts are not)", state.draft.reason
        )
        assert answer.done.stats.gate == state.draft.reason, "it is in the log, too"
        assert answer.done.stats.reply_tokens <= 64
    if not temperature:
        assert answer.text == fresh(tiny_model(name), [TURN], sampling, modes=OFF)


def test_drafts_that_were_asked_for_leave_no_debt(tiny_model: TinyModel) -> None:
    """What the gate learns of costs and acceptance counts, but auto may try its drafts at once."""
    with talk(tiny_model("glm4moe_echo"), modes=ALWAYS) as session:
        session.ask(TURN, sampling=LONG)
        opened = session.engine._worker._opened
        assert opened is not None
        gate = opened.speculation._gate
        assert all(account.balance >= 0 and not account.blocked for account in gate.accounts.values())
        assert gate._rates and gate.costs.measured(5)


def test_a_model_without_heads_says_so(tiny_model: TinyModel) -> None:
    with talk(tiny_model("qwen3moe")) as session:
        gate = session.ask(TURN, sampling=LONG).done.stats.gate
        assert gate.endswith("; the model has no NextN heads")
    with talk(tiny_model("qwen3moe"), lookup=False) as session:
        assert session.ask(TURN, sampling=LONG).done.stats.gate == "off: the model has no NextN heads"


def test_the_numbers_are_kept_with_the_reply(tiny_model: TinyModel) -> None:
    with talk(tiny_model("glm4moe_echo"), modes=ALWAYS) as session:
        stats = session.ask(TURN, sampling=LONG).done.stats
    assert stats.drafts is not None and stats.drafts.windows > 0
    assert stats.drafts.accepted <= stats.drafts.offered
    assert ReplyStats.from_dict(_through_json(stats)) == stats
    old = _through_json(stats)
    del old["drafts"], old["gate"]
    assert ReplyStats.from_dict(old).drafts is None


def _through_json(stats: ReplyStats) -> dict[str, object]:
    import json

    found: dict[str, object] = json.loads(json.dumps(stats.to_dict()))
    return found


def test_joint_confidence_ends_drafts(tiny_model: TinyModel) -> None:
    """A limit that no draft reaches leaves none."""
    with talk(tiny_model("glm4moe"), modes=ALWAYS, draft_min_p=0.999) as session:
        answer = session.ask("they", sampling=GREEDY)
    assert answer.done.stats.drafts is not None
    assert sum(answer.done.stats.drafts.offered) == 0


def test_a_stop_string_inside_a_window(tiny_model: TinyModel, tmp_path: Path) -> None:
    """What was verified behind it is taken back: the next turn reads what it reads without drafts."""
    path = tiny_model("llama_dense")
    whole = fresh(path, [TURN], LONG, modes=OFF)
    assert len(whole) > 20
    used = []
    for modes in (OFF, ALWAYS):
        with talk(path, modes=modes) as session:
            first = session.ask(TURN, sampling=LONG)
            second = session.ask(TURN, first.text, TURN, sampling=LONG)
            used.append((first.text, second.text, second.done.stats.reused_tokens))
    assert used[0] == used[1]
