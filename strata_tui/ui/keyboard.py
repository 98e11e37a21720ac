"""What a terminal sends, made ready for Textual's parser of keys."""

from __future__ import annotations

import codecs
import logging
import re
from typing import Any

from textual.drivers import linux_driver

_log = logging.getLogger(__name__)
_ESCAPE, _ALT = "\x1b", 3
_PASTE, _PASTED = "\x1b[200~", "\x1b[201~"
_ALT_KEY = re.compile(r"(?<!\x1b)\x1b([a-z0-9])")


class Keyboard(codecs.IncrementalDecoder):
    """Bytes to text. A byte that is no UTF-8 becomes a replacement character, where it would end the program.

    Alt and a letter or digit comes as escape and the character. The parser takes it for that only when nothing
    follows for a while, which fails over slow lines, where keys arrive together; so it is written here as terminals
    with the CSI u protocol do. What is pasted stays as it is.
    """

    def __init__(self, errors: str = "replace") -> None:
        super().__init__("replace")
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        self._pasting = False

    def decode(self, input: Any, final: bool = False) -> str:
        pieces = re.split(f"({re.escape(_PASTE)}|{re.escape(_PASTED)})", self._text.decode(input, final))
        out = []
        for piece in pieces:
            if piece in (_PASTE, _PASTED):
                self._pasting = piece == _PASTE
            elif not self._pasting:
                piece = _ALT_KEY.sub(lambda found: f"{_ESCAPE}[{ord(found[1])};{_ALT}u", piece)
            out.append(piece)
        return "".join(out)


def install() -> None:
    """Has Textual's driver use it. Its loop has no place for that, so the function by which it finds a decoder is
    another one from here on, in the driver's module only.
    """
    if not hasattr(linux_driver, "getincrementaldecoder"):
        _log.warning("This Textual decodes keys in another way: bytes that are not UTF-8 may end the chat.")
    linux_driver.getincrementaldecoder = lambda _encoding: Keyboard  # type: ignore[assignment]
