from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata_tui.text import Cleaner, clean, clean_line

NASTY = st.text(
    st.one_of(
        st.sampled_from(
            "ab[]()0;?m\\P^_X \n\t\r\x07\x08\x1b\x1b\x1b\x7f\x85\x90\x9b\x9c\x9d\u2028\u202e\u2066\ud800世"
        ),
        st.characters(),
    ),
    max_size=60,
)


@pytest.mark.parametrize(
    ("given_text", "wanted"),
    [
        ("plain text, 世界 👩‍👩‍👧 e\u0301", "plain text, 世界 👩‍👩‍👧 e\u0301"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[38;2;1;2;3m\x1b[?1049hx", "x"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]52;c;aGk=\x1b\\after", "after"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("\x1b(Bafter\x1bc", "after"),
        ("\x1b]0;never closed\nnext line", "0;never closed\nnext line"),
        ("\x1b", ""),
        ("a\x00b\x08c\x7fd\x9be", "abcde"),
        ("quotes read in the wrong code page: â\x80\x9cx y zâ\x80\x9d", "quotes read in the wrong code page: âx y zâ"),
        ("one\r\ntwo\rthree\u2028four\x85five", "one\ntwo\nthree\nfour\nfive"),
        ("\u202eevil\u202c \u2066x\u2069", "evil x"),
        ("right-to-left mark stays: \u200f", "right-to-left mark stays: \u200f"),
        ("half \ud83d a pair", "half \ufffd a pair"),
    ],
)
def test_clean(given_text: str, wanted: str) -> None:
    assert clean(given_text) == wanted


@given(NASTY)
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    cleaned = clean(text)
    assert all(char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp") for char in cleaned)
    assert not set(cleaned) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    cleaned.encode()
    assert clean(cleaned) == cleaned


@settings(max_examples=500)
@given(st.lists(NASTY, max_size=8))
def test_cleaned_in_pieces_is_cleaned_whole(pieces: list[str]) -> None:
    cleaner = Cleaner()
    assert "".join(map(cleaner.feed, pieces)) + cleaner.finish() == clean("".join(pieces))


def test_cut_sequences() -> None:
    text = "a\x1b[1;31mb\x1b]8;;http://x\x1b\\c\r\nd\x1b(Be"
    for cut in range(len(text)):
        cleaner = Cleaner()
        assert cleaner.feed(text[:cut]) + cleaner.feed(text[cut:]) + cleaner.finish() == "abc\nde"


def test_clean_line() -> None:
    assert clean_line(" two\nlines \x1b[1mand\x1b[0m\ttabs ") == "two lines and tabs"
