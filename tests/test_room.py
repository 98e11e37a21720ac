"""What a chat takes of its context, and what of it fits; measured by the real engine on a small random model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from model_fixtures import TinyModel
from talk import Talk, talk

from strata_tui.conversation import conversation, in_view
from strata_tui.engine.events import FinishReason, Measured, Message, Sampling
from strata_tui.room import REPLY, Asked, Room, left_out, look, reply_room, spans, toggled, tokens_without
from strata_tui.sessions.rows import Role

WORDS = "the people of water said that their expert could find a long way"


@dataclass(frozen=True)
class Line:
    role: Role
    text: str
    sent: bool = True


def path(*sizes: int, unsent: Sequence[int] = ()) -> tuple[Line, ...]:
    """Messages of both sides in turn, of so many times the words each."""
    roles = (Role.USER, Role.ASSISTANT)
    return tuple(Line(roles[n % 2], " ".join([WORDS] * size), n not in unsent) for n, size in enumerate(sizes))


@pytest.fixture(scope="module")
def session(tiny_model: TinyModel) -> Iterator[Talk]:
    with talk(tiny_model("qwen3moe"), context=512) as opened:
        yield opened


class Engine:
    """The engine's measure, and how often it was asked."""

    def __init__(self, session: Talk) -> None:
        self.session, self.asked = session, 0

    async def measure(self, messages: Sequence[Message], texts: Sequence[str] = ()) -> Measured:
        self.asked += 1
        question = self.session.engine.measure(messages, texts=texts)
        answer = self.session.wait(lambda e: isinstance(e, Measured) and e.id == question)[-1]
        assert isinstance(answer, Measured)
        return answer


def looked(session: Talk, asked: Asked, context: int = 512, longest: int | None = 24) -> Room:
    return asyncio.run(look(asked, context, longest, Engine(session).measure))


def taken(session: Talk, messages: Sequence[Message]) -> int:
    """Tokens of a prompt, as a reply to it counts them."""
    reply = session.engine.generate(messages, Sampling(temperature=0, max_tokens=0))
    return session.answer(reply).done.stats.prompt_tokens


def test_measured_is_what_a_reply_takes(session: Talk) -> None:
    asked = Asked("Be brief.", path(2, 1), "and now?")
    room = looked(session, asked)
    assert room.tokens == taken(session, asked.messages(asked.path)) and room.fits and room.first == 0
    assert room.texts == tuple(len(WORDS.split()) * size for size in (2, 1)) and room.tokens > sum(room.texts)
    assert room.chosen == frozenset()


def test_the_longest_end_that_fits_is_found(session: Talk) -> None:
    asked = Asked("", path(*[3] * 13, 3)[:14], "and now?")
    engine = Engine(session)
    room = asyncio.run(look(asked, 512, 24, engine.measure))
    assert room.tokens > 512 and not room.fits
    assert room.first is not None and asked.path[room.first].role is Role.USER
    fitting = asked.messages(asked.path[room.first :])
    assert taken(session, fitting) == room.fitting <= 512 - 24
    more = asked.messages(asked.path[room.first - 2 :])
    assert taken(session, more) > 512 - 24, "one exchange more does not fit"
    assert room.oldest == frozenset(range(room.first))
    assert engine.asked <= 1 + 3, "by halves, not one by one"
    left = asyncio.run(tokens_without(asked, room.oldest, engine.measure))
    assert left == room.fitting


def test_what_was_left_out_already_stays_so_and_takes_nothing(session: Talk) -> None:
    asked = Asked("", path(*[3] * 12, unsent=(0, 6)), "and now?")
    room = looked(session, asked, context=256)
    assert room.first is not None and {0, 1} <= room.chosen and not {0, 1} & room.oldest
    whole = Asked("", tuple(replace_sent(asked.path)), "and now?")
    assert looked(session, whole, context=256).tokens > room.tokens


def replace_sent(lines: Sequence[object]) -> list[Line]:
    return [Line(one.role, one.text) for one in lines if isinstance(one, Line)]


def test_a_message_that_is_too_long_alone_fits_nowhere(session: Talk) -> None:
    room = looked(session, Asked("", path(1, 1), " ".join([WORDS] * 50)))
    assert room.first is None and not room.fits
    alone = looked(session, Asked("", path(1, 1), " ".join([WORDS] * 37)), longest=4)
    assert alone.first == 2, "with nothing before it"


def test_a_reply_that_is_to_go_on_keeps_its_message(session: Talk) -> None:
    asked = Asked("", path(3, 3, 3, 28))
    assert asked.fixed == 2
    room = looked(session, asked, context=480)
    assert room.first == 2
    assert looked(session, Asked("", path(1, 60))).first is None


def test_why_it_cannot_be_measured(tiny_model: TinyModel) -> None:
    with talk() as empty, pytest.raises(Exception, match="No model is open"):
        asyncio.run(look(Asked("", path(1, 1)), 512, None, Engine(empty).measure))


def test_a_full_context_is_a_reason_of_its_own(session: Talk) -> None:
    reply = session.engine.generate([Message("user", " ".join([WORDS] * 34))], Sampling(temperature=1.5, seed=1))
    done = session.answer(reply).done
    assert done.reason is FinishReason.FULL and "512 tokens is full" in done.message


def test_what_a_reply_should_find_free() -> None:
    assert [reply_room(512, None), reply_room(100_000, None), reply_room(512, 24)] == [128, REPLY, 24]
    assert reply_room(512, 0) == reply_room(2, None) == 1


def test_a_reply_goes_and_comes_with_its_message() -> None:
    lines = path(1, 1, 1, 1)
    assert toggled(lines, frozenset(), 0) == {0, 1}
    assert toggled(lines, frozenset(), 3) == {3}
    assert toggled(lines, frozenset({0, 1}), 1) == frozenset()
    assert toggled(lines, frozenset({0, 1, 3}), 0) == {3}
    assert toggled(lines, frozenset({2, 3}), 3) == frozenset()
    assert toggled((Line(Role.ASSISTANT, "hello"), *lines), frozenset(), 0) == {0}


def test_what_the_model_gets() -> None:
    lines = path(1, 1, 1, 1, unsent=(0,))
    assert in_view(lines) == [False, False, True, True], "a reply never goes without what it answers"
    assert conversation("Be brief.", lines) == [
        Message("system", "Be brief."),
        Message("user", WORDS),
        Message("assistant", WORDS),
    ]
    assert conversation("", path(1, 1, 1, unsent=(1,))) == [Message("user", f"{WORDS}\n\n{WORDS}")]
    assert in_view(left_out(lines, frozenset({2, 3}))) == [True, True, False, False]


def test_spans() -> None:
    assert spans([]) == ""
    assert spans([0]) == "1"
    assert spans([0, 1]) == "1 and 2"
    assert spans([0, 1, 2, 6]) == "1 to 3, 7"
