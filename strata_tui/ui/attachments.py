"""Texts that go with a message: long pastes and files. They are folded in the prompt and sent whole.

A message with attachments is one text: what was typed, then each attachment as a line that names it and a
fenced block. That text is stored, searched, exported and sent as it is; `parted` finds the attachments in it
again, so that drafts, the history of the prompt and messages that are edited have theirs back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from ..errors import UserError
from ..text import clean, clean_line

PASTE_LIMIT = 2500  # characters; a longer paste becomes an attachment
MAX_FILE_BYTES = 512 * 1024
_HEAD = re.compile(r"^(?:Pasted text|File `([^`\n]+)`) \((\d+) lines?\):\n(`{3,})[\w+-]*\n", re.MULTILINE)
_RUN = re.compile(r"^`{3,}", re.MULTILINE)
_LANGUAGE = re.compile(r"\.([a-z0-9+]{1,12})")


@dataclass(frozen=True, slots=True)
class Attachment:
    """One text; `name` is its file's path, empty for a paste. Make it with `attachment`."""

    text: str
    name: str = ""

    @property
    def lines(self) -> int:
        """Number of lines."""
        return self.text.count("\n")

    @property
    def label(self) -> str:
        """How it is shown folded: `[pasted 312 lines]`, `[src/main.py, 40 lines]`."""
        count = f"{self.lines} line{'' if self.lines == 1 else 's'}"
        return f"[{self.name}, {count}]" if self.name else f"[pasted {count}]"

    def block(self) -> str:
        """How it stands in the message."""
        count = f"({self.lines} line{'' if self.lines == 1 else 's'})"
        head = f"File `{self.name}` {count}:" if self.name else f"Pasted text {count}:"
        fence = "`" * max(3, 1 + max((len(run) for run in _RUN.findall(self.text)), default=0))
        language = _LANGUAGE.fullmatch(PurePath(self.name).suffix.lower())
        return f"{head}\n{fence}{language[1] if language else ''}\n{self.text}{fence}"


def attachment(text: str, name: str = "") -> Attachment:
    """An attachment of a text, without control characters, and with a line end at its end."""
    text = clean(text)
    return Attachment(text if text.endswith("\n") or not text else text + "\n", clean_line(name).replace("`", "'"))


def read_file(path: Path, name: str = "") -> Attachment:
    """A text file as an attachment, named as given or by its path. Raises UserError; may wait for the disk."""
    name = name or str(path)
    try:
        if not path.is_file():
            raise UserError(
                f"{name} cannot be attached: {'it is no file' if path.exists() else 'there is no such file'}."
            )
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UserError(f"{name} cannot be attached: {error.strerror}.") from error
    if len(data) > MAX_FILE_BYTES:
        raise UserError(
            f"{name} cannot be attached: it is larger than {MAX_FILE_BYTES // 1024} KiB; attach a part of it."
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{name} cannot be attached: it is no UTF-8 text (byte {error.start}).") from error
    if "\0" in text:
        raise UserError(f"{name} cannot be attached: it is a binary file (a zero byte at {data.index(0)}).")
    if not text:
        raise UserError(f"{name} cannot be attached: it is empty.")
    return attachment(text, name)


def joined(typed: str, attachments: Sequence[Attachment]) -> str:
    """The message of a typed text and attachments. `parted` is its inverse."""
    blocks = "\n\n".join(one.block() for one in attachments)
    return f"{typed}\n\n{blocks}" if typed and blocks else typed + blocks


def parted(message: str) -> tuple[str, list[Attachment]]:
    """What was typed, and the attachments at the message's end; joined again they are the message."""
    for head in _HEAD.finditer(message):
        start = head.start()
        if start and not message.endswith("\n\n", 0, start):
            continue
        found = _blocks(message, start)
        typed = message[: max(0, start - 2)]
        if found and joined(typed, found) == message:
            return typed, found
    return message, []


def folded(message: str) -> str:
    """The message with each attachment as its label, for the eye."""
    typed, attachments = parted(message)
    labels = "\n".join(one.label for one in attachments)
    return f"{typed}\n\n{labels}" if typed and labels else typed + labels


def _blocks(message: str, start: int) -> list[Attachment]:
    """The attachments from `start` to the end; none where something else stands between them."""
    found: list[Attachment] = []
    while True:
        head = _HEAD.match(message, start)
        if head is None:
            return []
        end = head.end()
        for _ in range(int(head[2])):
            end = message.find("\n", end) + 1
            if not end:
                return []
        found.append(Attachment(message[head.end() : end], head[1] or ""))
        after = end + len(head[3])
        if message[end:after] != head[3]:
            return []
        if after == len(message):
            return found
        if message[after : after + 2] != "\n\n":
            return []
        start = after + 2
