"""What decides which expert is where, and when, changes no logit: policies, pinning, pool, pre-fill, mirror.

On the CPU device with delayed copies, so that the states between "asked for" and "there" last.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from model_fixtures import TinyModel
from talk import GREEDY, Answer, fresh, messages, talk

from strata_tui.engine import gguf_info, native
from strata_tui.engine.events import FinishReason, Loaded, LoadFailed, ModesChanged, Sampling, TextDelta
from strata_tui.engine.llama import Logits, LowLevel
from strata_tui.engine.modes import Modes, ModesState, Residency, SwitchState

TURN = "the people of water said that their expert could find a long way"
POLICIES = ("lru", "adaptive", "frozen", "toggled")
POOLS = (2, 16, 257)
PREFILLS = ("no", "even", "profile")
PINNINGS = ("auto", "toggled")
MIRRORS = {"none": 0.0, "half": 0.5, "all": 1.5}  # of the experts' bytes; with their pads such small ones are larger
TOGGLE = 8  # tokens decoded between two changes


@dataclass(frozen=True)
class Arm:
    policy: str
    pool: int
    prefill: str
    pinning: str
    mirror: str

    def __str__(self) -> str:
        return f"{self.policy}, pool {self.pool}, pre-fill {self.prefill}, pinning {self.pinning}, mirror {self.mirror}"


ARMS = [
    Arm(policy, pool, PREFILLS[(p + q) % 3], PINNINGS[(p + q) % 2], list(MIRRORS)[(q - p + 1) % 3])
    for (p, policy), (q, pool) in itertools.product(enumerate(POLICIES), enumerate(POOLS))
]


def test_the_arms_cover_every_pair() -> None:
    values = {"policy": POLICIES, "pool": POOLS, "prefill": PREFILLS, "pinning": PINNINGS, "mirror": tuple(MIRRORS)}
    for a, b in itertools.combinations(values, 2):
        seen = {(getattr(arm, a), getattr(arm, b)) for arm in ARMS}
        assert seen == set(itertools.product(values[a], values[b])), (a, b)


def experts_of(path: Path) -> int:
    return sum(n for _, n, _, _ in gguf_info.expert_groups(gguf_info.read_info(path)))


def run(model: LowLevel, prompt: int, decoded: int, arm: Arm | None = None) -> Logits:
    """Logits of `prompt` random tokens, read in parts of 128, and of random ones decoded after them."""
    core, tier = native.load(), model.tier
    rng = np.random.default_rng(prompt)
    tokens = [int(t) for t in rng.integers(3, model.model.n_vocab, prompt + decoded)]
    policies = (core.POLICY_FROZEN, core.POLICY_ADAPTIVE, core.POLICY_LRU)
    pins = ((core.PIN_ON, core.STAGER_SSD), (core.PIN_OFF, core.STAGER_RAM), (core.PIN_AUTO, core.STAGER_AUTO))
    turn = itertools.count()

    def toggle() -> None:
        if arm is None or tier is None:
            return
        n = next(turn)
        if arm.policy == "toggled":
            tier.set_policy(policies[n % 3])
        if arm.pinning == "toggled":
            tier.set_modes(*pins[n % 3])

    rows = []
    if tier is not None:
        tier.set_phase(core.PHASE_PROMPT)
    for start in range(0, prompt, 128):
        rows.append(model.decode(tokens[start : min(start + 128, prompt)], all_logits=True))
        toggle()
    if tier is not None:
        tier.set_phase(core.PHASE_DECODE)
    for i, token in enumerate(tokens[prompt:]):
        if i % TOGGLE == 0:
            toggle()
        rows.append(model.decode([token])[None])
    return np.concatenate(rows)


def check(path: Path, arm: Arm, slots: int, expected: Logits, prompt: int, decoded: int) -> None:
    core = native.load()
    mirror = int(MIRRORS[arm.mirror] * gguf_info.read_info(path).expert_bytes)
    options = {"pool_buffers": arm.pool, "mirror": mirror, "copy_delay_us": 40, "copy_seed": 11}
    with LowLevel(path, slots=slots, **options) as model:
        tier = model.tier
        assert tier is not None
        assert tier.selftest().startswith(f"self-test: {3 * arm.pool} copies")
        if arm.prefill != "no":
            usage = np.random.default_rng(5).random(tier.n_experts).astype(np.float32)
            assert tier.prefill(usage.tobytes() if arm.prefill == "profile" else None) == slots
            assert tier.arena()["slots_used"] == slots
        if arm.policy != "toggled":
            tier.set_policy(getattr(core, f"POLICY_{arm.policy.upper()}"))
        generation = int(str(tier.modes()["generation"]))
        logits = run(model, prompt, decoded, arm)
        assert logits.tobytes() == expected.tobytes()
        tier.verify(200, 3)
        # what the arm is about has happened
        counters = tier.counters()
        assert counters["prompt"]["evictions"] > 0 < counters["decode"]["misses"]
        assert tier.modes()["mirror"] == mirror
        for phase in counters.values():
            assert (phase["loads_mirror"] > 0) == (arm.mirror != "none")
            assert (phase["loads_staged"] > 0) == (arm.mirror != "all")
            assert phase["loads"] == phase["loads_mirror"] + phase["loads_staged"]
        assert (tier.swaps()["swaps"] > 0) == (arm.policy in ("adaptive", "toggled"))
        assert (int(str(tier.modes()["generation"])) > generation) == (arm.pinning == "toggled")


@pytest.fixture(scope="module")
def plain(tiny_model: TinyModel) -> Logits:
    with LowLevel(tiny_model("qwen3moe"), tier=False) as model:
        return run(model, 700, 64)


@pytest.mark.parametrize("arm", ARMS, ids=str)
def test_logits_are_those_of_plain_llama_cpp(arm: Arm, tiny_model: TinyModel, plain: Logits) -> None:
    path = tiny_model("qwen3moe")
    check(path, arm, experts_of(path) // 2, plain, 700, 64)


@pytest.fixture(scope="module")
def plain_demo(demo_model: Path) -> Logits:
    with LowLevel(demo_model, tier=False, context=256) as model:
        return run(model, 24, 32)


# adaptive from a profile; everything toggled; both with a mirror of half the experts
@pytest.mark.parametrize("arm", [ARMS[4], ARMS[9]], ids=str)
def test_logits_of_the_demo_model(arm: Arm, demo_model: Path, plain_demo: Logits) -> None:
    check(demo_model, arm, experts_of(demo_model) // 2, plain_demo, 24, 32)


# The engine's switch


def residency(state: ModesState | None) -> SwitchState:
    assert state is not None and state.residency is not None
    return state.residency


def test_residency_changes_while_a_reply_is_written_and_its_text_does_not(tiny_model: TinyModel) -> None:
    path = tiny_model("qwen3moe")
    long = Sampling(temperature=0, max_tokens=96)
    expected = fresh(path, [TURN], long)
    with talk(path, slots=24) as session:
        before = session.engine.snapshot().modes
        assert residency(before) == SwitchState("lru", "lru", "lru: the last used stay")
        reply_id = session.engine.generate(messages(TURN), long)
        answer = Answer(session.wait(lambda e: isinstance(e, TextDelta)))
        session.engine.set_modes(Modes(residency=Residency.ADAPTIVE))
        answer.events += session.answer(reply_id).events
        assert answer.text == expected
        [changed] = [e for e in answer.events if isinstance(e, ModesChanged)]
        assert residency(changed.state).actual == residency(changed.state).wanted == "adaptive"
        assert not residency(changed.state).pending
        assert before is not None and changed.state.pool_generation == before.pool_generation
        swaps = answer.done.stats.counters.swaps
        assert swaps is not None and swaps > 0
        shot = session.engine.snapshot()
        assert shot.counters.swaps == swaps
        assert residency(shot.modes).reason.startswith(f"adaptive: {swaps} swaps, 0.")
        assert residency(shot.modes).reason.endswith(" ms a round")
        session.engine.set_modes(Modes(residency=Residency.FROZEN))
        session.wait(lambda e: isinstance(e, ModesChanged))
        again = session.ask(TURN, sampling=long)
        assert again.text == expected
        assert again.done.stats.counters.swaps == 0  # of this reply
        assert residency(session.engine.snapshot().modes).actual == "frozen"


def test_a_dense_model_has_no_residency(tiny_model: TinyModel) -> None:
    with talk(tiny_model("llama_dense"), modes=Modes(residency=Residency.FROZEN)) as session:
        none = SwitchState("frozen", "not applicable", "not applicable: no experts")
        assert residency(session.engine.snapshot().modes) == none
        answer = session.ask(TURN)
        assert answer.done.stats.counters.swaps is None
        assert session.engine.snapshot().counters.swaps is None


def test_a_self_test_that_fails_ends_the_load(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    core = native.load()

    def fails(_: object) -> str:
        raise core.Error("self-test: copy 3 came out wrong")

    with talk() as session:
        with monkeypatch.context() as patch:
            patch.setattr(core.Tier, "selftest", fails)
            failed = session.open(tiny_model("qwen3moe"))
        assert isinstance(failed, LoadFailed)
        assert failed.message.endswith("cannot be opened: self-test: copy 3 came out wrong.")
        assert isinstance(session.open(tiny_model("qwen3moe")), Loaded)


# Checks of the cache


def test_a_wrong_resident_ends_the_reply(tiny_model: TinyModel, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    fault = native.load().FAULT_NEXT_EXPERT
    with talk(tiny_model("qwen3moe"), verify_cache=3, fault=fault, log=log) as session:
        for _ in range(2):
            answer = session.ask(TURN)
            assert answer.reason is FinishReason.ERROR
            assert "does not hold expert" in answer.done.message
            assert answer.done.message.endswith("; open the model again.")
            assert "history" not in answer.done.message
            counters = answer.done.stats.counters
            assert counters.prompt.rounds + counters.decode.rounds == 3
            assert answer.text  # of the rounds before; it is kept
            assert answer.done.stats.reused_tokens == answer.done.stats.context_used == 0
    found = [line for line in log.read_text().splitlines() if "verify: " in line]
    assert len(found) == 2 and all("; the slot's history: round " in line and " claimed " in line for line in found)


def test_checks_are_off_unless_asked_for_and_change_no_text(tiny_model: TinyModel) -> None:
    path = tiny_model("qwen3moe")
    with talk(path, fault=native.load().FAULT_NEXT_EXPERT) as session:
        wrong = session.ask(TURN)
        assert wrong.reason is not FinishReason.ERROR
    with talk(path, verify_cache=1) as session:
        right = session.ask(TURN)
        assert right.reason is not FinishReason.ERROR
    assert right.text == fresh(path, [TURN], GREEDY) != wrong.text
