"""llama.cpp's log: whole lines to a sink, and the last error lines for the messages that people read."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

_LEVELS = {1: "debug", 2: "info", 3: "warning", 4: "error"}
_CAUSE = re.compile(r"error loading model(?: \w+)?: |exception: ")  # what follows says why
_BUFFER = re.compile(r"(\S+) +(KV|RS|compute) buffer size = +([\d.]+) MiB")
# What llama.cpp says of a decode that was ended because it was asked to be (GGML_STATUS_ABORTED is 1, and llama_decode
# gives 2): to it that is an error.
_ABORTED = re.compile(r"compute_async failed with error 1$|compute status: 1$|failed to decode, ret = 2$")
_FUNCTION = re.compile(r"^[\w:~]+: ")  # llama.cpp begins its lines with a function's name


def cause(error: Exception) -> str:
    """An error's text as the end of a sentence, without its full stop."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


class LlamaLog:
    """One for the process: llama.cpp has one log, and writes to it from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partial = ""
        self._level = 2
        self._errors: deque[str] = deque(maxlen=16)
        self._buffers: list[tuple[str, str, int]] = []
        self._callback: Any = None  # ctypes calls it for the life of the process: keep it
        self.sink: Callable[[str, str], None] | None = None  # (level, line)

    def install(self, callback_type: Any, setter: Any) -> None:
        self._callback = callback_type(self._write)
        setter(self._callback, None)

    def start(self) -> None:
        """Before a call: forgets the errors and buffers of earlier ones."""
        with self._lock:
            self._errors.clear()
            self._buffers.clear()

    def buffers(self, kind: str) -> int | None:
        """Bytes of the "KV", "RS" (recurrent state) or "compute" buffers made since `start`, host ones apart.

        None when llama.cpp's log named none.
        """
        with self._lock:
            sizes = [size for name, what, size in self._buffers if what == kind and not name.endswith("_Host")]
        return sum(sizes) if sizes else None

    def reason(self) -> str:
        """Why the last call failed, as far as the error lines since `start` say."""
        with self._lock:
            lines = list(self._errors)
        causes = [_CAUSE.split(line)[-1] for line in lines if _CAUSE.search(line)]
        if not causes and not lines:
            return "it gave no reason"
        why = causes[0] if causes else lines[0]
        while _FUNCTION.match(why):
            why = _FUNCTION.sub("", why)
        return why.strip().rstrip(".")

    def _write(self, level: int, text: bytes | None, _user: object) -> None:
        sink = self.sink
        with self._lock:
            if level in _LEVELS:
                self._level = level
            self._partial += (text or b"").decode("utf-8", "replace")
            *lines, self._partial = self._partial.split("\n")
            name = _LEVELS.get(self._level, "info")
            lines = [line.rstrip() for line in lines if line.strip()]
            if name == "error" and lines and all(map(_ABORTED.search, lines)):
                name = "debug"
            if name == "error":
                self._errors.extend(lines)
            for found in filter(None, map(_BUFFER.search, lines if name == "info" else [])):
                self._buffers.append((found[1], found[2], int(float(found[3]) * (1 << 20))))
        if sink is not None:
            for line in lines:
                sink(name, line)


LOG = LlamaLog()
