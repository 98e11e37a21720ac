from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strata_tui.errors import UserError
from strata_tui.sessions.rows import Role, Status
from strata_tui.sessions.search import Hit, folded, match_title, spaced, terms_of
from strata_tui.sessions.store import Store
from strata_tui.text import clean


def chat(store: Store, *texts: str, title: str = "Untold") -> int:
    session = store.create_session(title=title).result()
    for text in texts:
        store.add_user_message(session, text).result()
    return session


def found(store: Store, words: str) -> list[str]:
    """The texts that are found, the best first."""
    store.flush()
    texts = {m.id: m.text for s in store.list_sessions() for m in store.messages(s.id)}
    return [texts[hit.message] for hit in store.search(words) if hit.message is not None]


def matched(hit: Hit) -> list[str]:
    return [text for text, marked in hit.snippet if marked]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("duck", "A duck swims."),
        ("DUCK swim", "A duck swims."),
        ("swims duck", "A duck swims."),
        ("krakow", "Trip to Kraków"),
        ("KRAKÓW", "Trip to Kraków"),
        ('"duck swims"', "A duck swims."),
        ("well-known", "It is well-known."),
        ("c++", "How do I learn C++ fast?"),
        ("don't", "I don't know"),
        ("日本", "これは日本語です。"),
        ("本", "これは日本語です。"),
        ("日本 これ", "これは日本語です。"),
        ('"日本語"', "これは日本語です。"),
        ("語x", "mixed 日本語xyz text"),
        ("한국", "나는 한국어를 배운다"),
        ("국어", "나는 한국어를 배운다"),
        ("ไทย", "ภาษาไทยยาก"),
        ("привет", "Привет, мир"),
        ("x=1", "set x=1 here"),
        ("3.36", "version 0.3.36"),
        ("snake_case", "the snake_case name"),
    ],
)
def test_what_is_found(store: Store, words: str, text: str) -> None:
    chat(store, text, "something else entirely", "and 別の文")
    assert found(store, words) == [text]


@pytest.mark.parametrize("words", ["uck", "duck goose", '"swims duck"', '"swim"', "本日", "日語", "ducks"])
def test_what_is_not_found(store: Store, words: str) -> None:
    chat(store, "A duck swims.", "これは日本語です。")
    assert found(store, words) == []


ODD = [
    "",
    "  ",
    '"',
    '""',
    "'",
    "*",
    "???",
    "(",
    "AND",
    "NOT duck",
    "duck NEAR(",
    "text:duck",
    "-duck",
    "^duck",
    "duck*",
]
ODD += ['"duck', 'duck"', 'du"ck', "\x00duck", "duck\x00", "\udcff", "a" * 5000, "{}[]", "; DROP TABLE x"]


@pytest.mark.parametrize("words", ODD)
def test_odd_input_is_no_error(store: Store, words: str) -> None:
    chat(store, "duck")
    assert found(store, words) in (["duck"], [])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.text(max_size=40), text=st.text(max_size=60))
def test_any_input_is_no_error_and_any_word_finds_its_text(store: Store, words: str, text: str) -> None:
    store.search(words)
    message = store.add_user_message(chat(store), text).result()
    picked = next((w for w in clean(text).split() if w.isalnum() and w.isascii()), None)
    if picked is not None:
        assert message in [hit.message for hit in store.search(picked, limit=10_000)]


def test_too_many_words(store: Store) -> None:
    with pytest.raises(UserError, match="32 words at most; this one has 40"):
        store.search("word " * 40)


def test_the_best_comes_first(store: Store) -> None:
    long = "padding " * 200
    chat(store, f"{long} slot {long}", "a slot", "slots and slots, slotted", "nothing")
    assert found(store, "slot")[0] == "a slot"  # the whole word, in a short text
    assert len(found(store, "slot")) == 3


def test_deleted_chats_and_thinking_are_left_out(store: Store) -> None:
    session = chat(store, "question about ducks")
    reply = store.begin_reply(session).result()
    store.checkpoint_reply(reply, "half a duck", "ducks, hm")
    assert found(store, "half") == []  # it is still being written
    store.finish_reply(reply, Status.DONE, "An answer.", "think of geese").result()
    assert found(store, "answer") == ["An answer."]
    assert store.search("geese") == []
    store.delete(session).result()
    assert store.search("ducks") == []
    store.restore(session).result()
    assert found(store, "ducks") == ["question about ducks"]


def test_all_branches_are_found(store: Store) -> None:
    session = store.create_session(title="Untold").result()
    question = store.add_user_message(session, "question").result()
    for text in ("first try", "second try"):
        store.finish_reply(store.begin_reply(session, question), Status.STOPPED, text)
    assert sorted(found(store, "try")) == ["first try", "second try"]


def test_snippets(store: Store) -> None:
    text = "lead " * 100 + "\n\nthe expert\x1b[31m cache\twarms " + "tail " * 100
    session = chat(store, text, title="Warm-up")
    [hit] = store.search("cache expert")
    assert (hit.session, hit.title, hit.role) == (session, "Warm-up", Role.USER)
    assert matched(hit) == ["expert", "cache"]
    line = "".join(piece for piece, _ in hit.snippet)
    assert "the expert cache warms tail" in line and line.startswith("…") and line.endswith("…")
    assert line.isprintable()


def test_a_snippet_shows_text_without_spaces_as_it_is(store: Store) -> None:
    chat(store, "昨日は日本語を勉強した。")
    [hit] = store.search("日本語")
    assert matched(hit) == ["日本語"]
    assert "".join(piece for piece, _ in hit.snippet) == "昨日は日本語を勉強した。"


def test_titles_are_found_first(store: Store) -> None:
    named = chat(store, "nothing of the kind", title="Trip to Kraków")
    other = chat(store, "krakow is nice", title="Holidays")
    hits = store.search("krakow")
    assert [(h.session, h.message is None) for h in hits] == [(named, True), (other, False)]
    assert hits[0].snippet == (("Trip to ", False), ("Kraków", True))
    store.delete(named).result()
    assert [h.session for h in store.search("krakow")] == [other]


def test_a_title_in_pieces() -> None:
    assert match_title("Slots of slots", terms_of("slot")) == (
        ("Slot", True), ("s of ", False), ("slot", True), ("s", False))  # fmt: skip
    assert match_title("Slots", terms_of("slot cache")) == ()
    assert match_title("Straße ﬁn", terms_of("strasse")) == (("Straße ﬁn", False),)  # letters came apart
    assert folded("ÉCOLE") == "ecole"


def test_an_edit_or_a_rename_is_found_at_once(store: Store, path: Path) -> None:
    session = chat(store, "before")
    assert found(store, "before") == ["before"]
    store.rename(session, "Quite new").result()
    assert [h.message for h in store.search("quite")] == [None]
    with closing(sqlite3.connect(path)) as other:
        other.execute("UPDATE messages SET text = 'after'")
        other.commit()
    assert found(store, "before") == []
    assert found(store, "after") == ["after"]


def test_many_messages_are_indexed_in_parts(store: Store) -> None:
    session = store.create_session().result()
    for n in range(1100):
        last = store.add_user_message(session, f"number {n}")
    last.result()
    assert found(store, "1099") == ["number 1099"]
    assert len(store.search("number", limit=2000)) == 1101  # the title, too


def test_spaced_keeps_what_is_seen() -> None:
    for text in ("plain words", "日本語", "ab日本cd", "ไทย", "e\u0301"):
        assert spaced(text).replace("\u200b", "") == text
