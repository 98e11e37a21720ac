"""What comes from a terminal."""

from __future__ import annotations

import pytest
from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver

from strata_tui.ui.keyboard import Keyboard, install


def keys(*reads: bytes) -> list[str]:
    """What Textual's parser makes of it: names of keys, characters outside ASCII, and what was pasted."""
    parser, keyboard, found = XTermParser(), Keyboard(), []
    for event in (event for data in reads for event in parser.feed(keyboard.decode(data))):
        if isinstance(event, events.Paste):
            found.append(f"paste {event.text}")
        elif isinstance(event, events.Key):
            outside = event.character is not None and not event.character.isascii()
            found.append(event.character if outside and event.character else event.key)
    return found


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        ((b"\x1bmx",), ["alt+m", "x"]),
        ((b"\x1bm\x1b[A",), ["alt+m", "up"]),
        ((b"\x1bk\x1b2a",), ["alt+k", "alt+2", "a"]),
        ((b"\x1bOQ\x1b[1;3A",), ["f2", "alt+up"]),
        ((b"a\xffb",), ["a", "\ufffd", "b"]),
        ((b"caf\xc3", b"\xa9"), ["c", "a", "f", "\xe9"]),
        ((b"\x1b[200~one\n", b"two\x1b[201~x"), ["paste one\ntwo", "x"]),
    ],
)
def test_keys_that_come_together_are_told_apart(reads: tuple[bytes, ...], expected: list[str]) -> None:
    assert keys(*reads) == expected


def test_what_is_pasted_stays_as_it_is() -> None:
    keyboard = Keyboard()
    assert keyboard.decode(b"\x1b[200~\x1bm") + keyboard.decode(b"\x1b[201~\x1bm") == (
        "\x1b[200~\x1bm\x1b[201~\x1b[109;3u"
    )


def test_a_textual_that_it_does_not_fit_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(linux_driver, "getincrementaldecoder", None)  # so that it is put back
    install()
    assert not caplog.records
    monkeypatch.delattr(linux_driver, "getincrementaldecoder")
    install()
    assert "decodes keys in another way" in caplog.text
