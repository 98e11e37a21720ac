"""Windows of drafts: the text, the memory and the sampler are what they are without drafts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import numpy as np
import pytest
from model_fixtures import TinyModel
from nextn_reference import Reference
from speculating import GREEDY, Drafter, Open, heads, nothing, opened, right, wrong

from strata_tui.engine import llama, native
from strata_tui.engine.sampler import Sampler
from strata_tui.engine.sampling import Resolved

PROMPT = "the people of water said that their expert could find a long way"
COUNT = 48
HEADS = ("glm4moe", "glm4moe_echo", "deepseek2_nextn", "qwen3next_nextn", "qwen35moe", "hy_v3", "step35")
MODELS = ("qwen3moe", "gpt_oss", "deepseek2", "qwen3next", "llama_dense", *HEADS)


@pytest.mark.parametrize("name", MODELS)
def test_drafts_change_neither_text_nor_memory(name: str, tiny_model: TinyModel) -> None:
    """On the CPU a row's numbers do not depend on the window's length with these models, so that equality is exact."""
    with opened(tiny_model(name), flash=name == "gpt_oss") as o:
        prompt = o.model.tokenize(PROMPT)
        expected = o.write(prompt, COUNT, nothing)
        text = list(o.text)
        for drafter in _drafters(o, text):
            assert o.write(prompt, COUNT, drafter) == expected
            keep = o.position  # ends anywhere in the text: compare with a memory that was never cut
            state, logits = o.state(), o.next_logits()
            o.context.clear()
            o.spec.cut(0)
            for position, token in enumerate(o.text[:keep]):
                assert o.context.decode([token], position) == llama.OK
            if o.model.has_state:  # its kernels for one token and for several round differently
                assert np.abs(o.next_logits() - logits).max() < 1e-3 * np.abs(logits).max()
            else:
                assert o.state() == state
                assert np.array_equal(o.next_logits(), logits)


def _drafters(o: Open, text: list[int]) -> list[Drafter]:
    found = [right(text, 3), wrong(1), wrong(4), lambda o, p: [*right(text, 2)(o, p), *wrong(2)(o, p)]]
    return [*found, heads(1), heads(4)] if o.has_heads else found


@pytest.mark.parametrize(("name", "kept"), [("qwen35moe", 4), ("qwen3next", 0)])
def test_snapshots_take_back_what_a_replay_would(name: str, kept: int, tiny_model: TinyModel) -> None:
    """Where llama.cpp keeps recurrent states of the last tokens for the architecture; for others a replay is used."""
    texts = []
    for snapshots in (0, 4):
        with opened(tiny_model(name), snapshots=snapshots) as o:
            assert llama.library().llama_n_rs_seq(o.context.ptr) == (kept if snapshots else 0)
            prompt = o.model.tokenize(PROMPT)
            expected = o.write(prompt, COUNT, nothing)
            text = list(o.text)
            # longer windows than there are snapshots are replayed
            drafters = (wrong(3), wrong(6), lambda o, p, text=text: [*right(text, 2)(o, p), *wrong(2)(o, p)])
            texts += [expected, *(o.write(prompt, COUNT, drafter) for drafter in drafters)]
    assert all(text == texts[0] for text in texts)


@pytest.mark.parametrize("outputs", [1, 5])
@pytest.mark.parametrize("name", HEADS)
def test_drafts_are_what_the_heads_say(name: str, outputs: int, tiny_model: TinyModel) -> None:
    """However many pairs of token and hidden row waited for them, or none: the text was just read as a prompt."""
    with opened(tiny_model(name), outputs=outputs) as o, closing(Reference(o)) as reference:
        prompt = o.model.tokenize(PROMPT)
        o.write(prompt, 32, nothing)
        text = list(o.text)

        def some(o: Open, pending: int) -> Sequence[int]:  # drafts of the heads, behind tokens that came without
            at = len(o.text) - len(prompt)
            return heads(4)(o, pending) if at % 3 == 0 else right(text, at % 5)(o, pending)

        o.write(prompt, 28, some)
        own = [(position, window) for position, window, _ in o.windows if (position + 1 - len(prompt)) % 3 == 0]
        assert any(len(window) > 2 for _, window in own), "some drafts were drawn from drafts"
        for position, window in own:
            assert reference.draft(text[: position + 1], 4) == window[1:]


@pytest.mark.parametrize("name", ["glm4moe", "hy_v3"])
@pytest.mark.parametrize(("back", "drafted"), [(3, False), (9, False), (1, True), (3, True), (17, True)])
def test_drafts_behind_a_cut(name: str, back: int, drafted: bool, tiny_model: TinyModel) -> None:
    """Back into what the heads have read, where no hidden row is known any more, or into what still waits for them."""
    with opened(tiny_model(name)) as o, closing(Reference(o)) as reference:
        prompt = o.model.tokenize(PROMPT)
        sampler = o.start(prompt, GREEDY)
        while len(o.text) < len(prompt) + 12:
            o.round(heads(2) if drafted else nothing)
        keep = len(o.text) - 1 - back
        assert keep > 4
        assert o.context.remove_from(keep)
        o.spec.cut(keep)
        o.text = [*o.text[:keep], 40]
        o.round(heads(4))
        text, drafts = o.text[: keep + 1], o.windows[-1][1][1:]
        assert drafts == reference.draft(text, 4, known=not drafted)
        sampler.close()


@pytest.mark.parametrize("name", ["qwen3moe", "qwen3next"])
def test_experts_of_rejected_drafts_do_not_count(name: str, tiny_model: TinyModel) -> None:
    """The usage by which experts keep their slots is that of the text, whatever was drafted on the way."""
    with opened(tiny_model(name), slots=24) as o:
        prompt = o.model.tokenize(PROMPT)
        expected, plain = _usage(o, prompt, nothing)
        text = list(o.text)
        for drafter in (wrong(4), lambda o, p: [*right(text, 1)(o, p), *wrong(2)(o, p)], right(text, 3)):
            found, usage = _usage(o, prompt, drafter)
            assert found == expected
            assert np.array_equal(usage, plain)
        assert sum(o.tier.counters()[phase]["evictions"] for phase in ("prompt", "decode")) > 0


def _usage(o: Open, prompt: list[int], drafter: Drafter) -> tuple[list[int], np.ndarray]:
    """COUNT tokens, and how often each expert was picked for them."""
    before = np.frombuffer(o.tier.usage(), np.float32)

    def ending(o: Open, pending: int) -> Sequence[int]:  # at the same token, whatever is drafted
        return drafter(o, pending)[: len(prompt) + COUNT - len(o.text) - 1]

    found = o.write(prompt, COUNT, ending)
    assert len(o.text) == len(prompt) + COUNT
    return found, np.frombuffer(o.tier.usage(), np.float32) - before


def test_windows_on_few_slots(tiny_model: TinyModel) -> None:
    with opened(tiny_model("glm4moe")) as o:
        prompt = o.model.tokenize(PROMPT)
        expected = o.write(prompt, COUNT, heads(3))
    with opened(tiny_model("glm4moe"), slots=20) as o:
        assert o.write(prompt, COUNT, heads(3)) == expected


def test_the_same_windows_without_verification_choose_the_same(tiny_model: TinyModel) -> None:
    """Forced-window replay: each window decoded as it was, its rows' largest logits are what was chosen."""
    with opened(tiny_model("glm4moe_echo")) as o:
        prompt = o.model.tokenize(PROMPT)
        o.write(prompt, COUNT, heads(4))
        windows = list(o.windows)
        o.context.clear()
        assert o.context.decode(prompt, 0) == llama.OK
        right = 0
        for position, window, chosen in windows:
            assert o.context.decode(window, position, all_logits=True) == llama.OK
            for row, token in enumerate(chosen):
                assert int(o.context.logits(row).argmax()) == token
            assert o.context.remove_from(position + len(chosen))
            right += len(chosen) - 1
        assert right > 0, "some drafts were right, or nothing was tested"


def test_a_seed_gives_the_same_text_with_and_without_compared_drafts(tiny_model: TinyModel) -> None:
    sampling = Resolved(temperature=1.2, top_k=30, top_p=0.9, min_p=0.02, repeat_penalty=1.2)
    with opened(tiny_model("qwen3moe")) as o:
        prompt = o.model.tokenize(PROMPT)
        expected = o.write(prompt, COUNT, nothing, sampling, seed=5)
        text = list(o.text)
        assert o.write(prompt, COUNT, nothing, sampling, seed=6) != expected
        for drafter in (right(text, 4), wrong(2)):
            assert o.write(prompt, COUNT, drafter, sampling, seed=5) == expected


def test_an_end_of_generation_ends_the_window(tiny_model: TinyModel) -> None:
    with opened(tiny_model("qwen3moe")) as o:
        prompt = o.model.tokenize(PROMPT)
        expected = o.write(prompt, 8, nothing)
        end = o.model.eos
        bias = llama.library().llama_logit_bias(end, 1000.0)
        sampler = o.start(prompt, GREEDY)
        link = llama.library().llama_sampler_init_logit_bias(o.model.n_vocab, 1, bias)
        llama.library().llama_sampler_chain_add(sampler._chain, link)
        o.spec.begin(sampler.address, True, 0, 0)  # a link that raises a logit: the few likeliest are not enough
        status, tokens = o.spec.step(expected[0], len(prompt), [end, 5, 6])
        assert (status, tokens) == (0, [end])
        assert o.context.pos_max() == len(prompt)
        o.spec.end()
        sampler.close()


def test_the_hidden_row_crosses_batches(tiny_model: TinyModel) -> None:
    """A prompt read in parts gives the drafts that it gives in one."""
    with opened(tiny_model("glm4moe_echo")) as o:
        prompt = o.model.tokenize(" ".join([PROMPT] * 3))
        seen = []
        for part in (128, 5, 1):
            sampler = o.start(prompt, GREEDY, part=part)
            for _ in range(6):
                o.round(heads(3))
            seen.append([window for _, window, _ in o.windows])
            sampler.close()
        assert seen[0] == seen[1] == seen[2]


def test_drafting_goes_on_after_rounds_without(tiny_model: TinyModel) -> None:
    """What is decoded while nobody drafts is read later, so that the drafts are the same."""
    with opened(tiny_model("glm4moe_echo"), context=1024) as o:
        prompt = o.model.tokenize(PROMPT)
        pauses = [0, 3, 63, 64, 65, 200]
        always = o.write(prompt, 256, heads(1))
        drafts = {p: w for p, w, _ in o.windows}
        for pause in pauses:
            sampler = o.start(prompt, GREEDY)
            for _ in range(pause):
                o.round(nothing)
            o.round(heads(1))
            position, window, _ = o.windows[-1]
            if position in drafts:
                assert window == drafts[position]
            assert o.text[len(prompt) :] == always[: len(o.text) - len(prompt)]
            sampler.close()


def test_after_a_cut_drafts_go_on(tiny_model: TinyModel) -> None:
    """An edit: the memory keeps a part; the heads know no hidden row in front of what comes, and start with none."""
    with opened(tiny_model("glm4moe_echo")) as o:
        prompt = o.model.tokenize(PROMPT)
        expected = o.write(prompt, COUNT, nothing)
        sampler = o.start([*prompt, *expected[:20], 40, 41, 42], GREEDY)
        for _ in range(5):
            o.round(heads(2))
        keep = len(prompt)
        assert o.context.remove_from(keep)
        o.spec.cut(keep)
        o.text = [*prompt, expected[0]]
        while len(o.text) < len(prompt) + COUNT:
            o.round(heads(2))
        assert o.text[len(prompt) : len(prompt) + COUNT] == expected
        sampler.close()


def test_drafting_resumes_with_the_row_that_it_was_saved_with(tiny_model: TinyModel) -> None:
    with opened(tiny_model("glm4moe")) as o:
        prompt = o.model.tokenize(PROMPT)
        sampler = o.start(prompt, GREEDY)
        for _ in range(140):  # more than the rows that may wait
            o.round(nothing)
        position, pending = o.position, o.text[-1]
        assert o.spec.settle(position + 1) is None, "so many tokens are not there"
        carry = o.spec.settle(position)
        assert carry is not None

        def draft() -> tuple[int, float] | None:
            found = o.spec.draft(pending, position, True)
            o.spec.cut(position)  # the row in front of what comes is not known now
            return found

        expected = draft()
        without = draft()
        o.spec.resume(position, carry)
        again = draft()
        assert expected is not None
        assert expected == again != without
        with pytest.raises(ValueError, match="of another size"):
            o.spec.resume(position, carry[:-4])
        sampler.close()
    with opened(tiny_model("qwen3moe")) as o:
        sampler = o.start(o.model.tokenize(PROMPT), GREEDY)
        assert o.spec.settle(o.position) is None, "there are no heads"
        with pytest.raises(ValueError, match="no heads"):
            o.spec.resume(1, carry)
        sampler.close()


@pytest.mark.parametrize("name", ["glm4moe", "hy_v3", "deepseek2_nextn"])
@pytest.mark.parametrize("rounds", [0, 1, 140])
def test_what_was_taken_back_leaves_no_trace_in_drafts(name: str, rounds: int, tiny_model: TinyModel) -> None:
    """Another text behind the same beginning, written with drafts or without (so that its pairs wait), then cut off."""
    with opened(tiny_model(name), context=512) as o:
        prompt, more = o.model.tokenize(PROMPT), o.model.tokenize("what did the first expert write")
        seen = []
        for other in ("they said no", "a long day"):
            sampler = o.start([*prompt, *o.model.tokenize(other)], GREEDY)
            for i in range(rounds):
                o.round(nothing if i % 3 else heads(3))
            o.spec.end()
            sampler.close()
            keep = len(prompt)
            assert o.context.remove_from(keep)
            o.spec.cut(keep)
            assert o.context.decode(more, keep) == llama.OK
            assert o.spec.observe(more, keep) == 0
            sampler = Sampler(o.model, GREEDY)
            sampler.accept([*prompt, *more])
            o.spec.begin(sampler.address, sampler.greedy, sampler.keep, 0)
            o.text = [*prompt, *more, 40]
            windows = len(o.windows)
            for _ in range(4):
                o.round(heads(4))
            seen.append(o.windows[windows:])
            o.spec.end()
            sampler.close()
        assert seen[0] == seen[1]
        assert any(len(window) > 2 for _, window, _ in seen[0])


def test_nonsense_is_refused(tiny_model: TinyModel) -> None:
    with opened(tiny_model("qwen3moe")) as o:
        with pytest.raises(native.load().Error, match="no reply was begun"):
            o.spec.step(1, 0, [])
        sampler = o.start(o.model.tokenize(PROMPT), GREEDY)
        for drafts in ([o.model.n_vocab], [-1], [1] * 9):
            with pytest.raises(ValueError):
                o.spec.step(1, o.position, drafts)
        assert o.spec.draft(1, o.position, True) is None, "no heads"
        sampler.close()
