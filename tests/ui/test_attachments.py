from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata_tui.errors import UserError
from strata_tui.sessions.store import title_from
from strata_tui.ui.attachments import MAX_FILE_BYTES, Attachment, attachment, folded, joined, parted, read_file

PIECES = st.sampled_from(
    ["`", "```", "````", "\n", "a", " ", "File `x` (1 line):", "Pasted text (2 lines):", "\n\n", "py"]
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)
ATTACHMENTS = st.builds(attachment, TEXTS, st.sampled_from(["", "a.py", "dir/b c.txt", "odd`name"]))


def test_a_message_reads_well() -> None:
    message = joined("What is wrong here?", [attachment("x = 1\ny = 2", "src/a.py"), attachment("log\n")])
    assert message == (
        "What is wrong here?\n\nFile `src/a.py` (2 lines):\n```py\nx = 1\ny = 2\n```\n\n"
        "Pasted text (1 line):\n```\nlog\n```"
    )
    assert folded(message) == "What is wrong here?\n\n[src/a.py, 2 lines]\n[pasted 1 line]"
    assert title_from(message) == "What is wrong here?"


def test_only_attachments_are_a_message() -> None:
    message = joined("", [attachment("one\n")])
    assert parted(message) == ("", [Attachment("one\n")])
    assert folded(message) == "[pasted 1 line]"


def test_fences_inside_an_attachment_do_not_end_it() -> None:
    one = attachment("before\n```py\nx\n```\nafter\n````\n")
    assert one.block().splitlines()[1] == "`````"
    assert parted(joined("see", [one, one])) == ("see", [one, one])


@given(TEXTS, st.lists(ATTACHMENTS, max_size=3))
def test_parted_and_joined_again_it_is_the_same_message(typed: str, attachments: list[Attachment]) -> None:
    message = joined(typed, attachments)
    assert joined(*parted(message)) == message
    found = parted(message)[1]
    assert found[len(found) - len(attachments) :] == attachments


@given(TEXTS)
def test_any_text_stays_as_it_is(text: str) -> None:
    assert joined(*parted(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "Pasted text (2 lines):\n```\none\n```",  # another number of lines
        "Pasted text (1 line):\n```\none\n```\nmore",
        "x\nPasted text (1 line):\n```\none\n```",  # no empty line before it
        "Pasted text (1 line):\n````\none\n````",  # not the fence that the program would write
        "File `a.py` (1 line):\n```c\none\n```",
    ],
)
def test_what_only_looks_like_one_is_text(text: str) -> None:
    assert parted(text) == (text, [])


def test_escape_characters_are_taken_out() -> None:
    assert attachment("a\x1b[31mb\r\nc", "n\x1b[2J\nx").text == "ab\nc\n"
    assert attachment("", "n\nx`").name == "n x'"


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes("\ufeffgrüße\r\n".encode())
    assert read_file(path, "a.md") == Attachment("grüße\n", "a.md")
    assert read_file(path).name == str(path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"a\0b", "a binary file (a zero byte at 1)"),
        (b"\xff\xfe", "no UTF-8 text (byte 0)"),
        (b"x" * (MAX_FILE_BYTES + 1), "larger than 512 KiB"),
        (b"", "it is empty"),
        (None, "there is no such file"),
    ],
)
def test_files_that_cannot_be_attached(tmp_path: Path, data: bytes | None, reason: str) -> None:
    path = tmp_path / "a"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UserError, match="^a cannot be attached: ") as caught:
        read_file(path, "a")
    assert reason in str(caught.value)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it is no file"):
        read_file(tmp_path)
