"""From tokens back to text: stop strings, and thinking split from the reply's own text."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

Part = tuple[str, bool]  # (text, whether it is thinking)
# Markers of templates whose replies are written in channels
CHANNEL, MESSAGE, END, START = "<|channel|>", "<|message|>", "<|end|>", "<|start|>"


class ReplyText:
    """Text of one reply, token by token. Never emits half a UTF-8 character, nor half a marker."""

    def __init__(
        self,
        piece: Callable[[int], bytes],
        markers: dict[int, str],
        splitter: Channels | Pairs,
        stops: Sequence[str] = (),
    ) -> None:
        self._piece = piece
        self._markers = markers
        self._splitter = splitter
        self._stops = stops
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # may become a stop string
        self.stopped = False  # a stop string was written: the reply is over

    def feed(self, token: int) -> list[Part]:
        """What the token adds, in order; often nothing, while something is held back."""
        marker = self._markers.get(token)
        if marker is not None:
            before = self._text(self._decoder.decode(b"", final=True))
            self._decoder.reset()
            return _joined(before + self._flush_held() + self._splitter.marker(marker))
        return _joined(self._text(self._decoder.decode(self._piece(token))))

    @property
    def thinking(self) -> bool:
        """Whether the next text is thinking, as far as is known."""
        return self._splitter.thinking

    def finish(self) -> list[Part]:
        """What was held back, at the end of the reply."""
        rest = self._text(self._decoder.decode(b"", final=True))
        return _joined(rest + self._flush_held() + self._splitter.finish())

    def _text(self, text: str) -> list[Part]:
        if not self._stops or self.stopped:
            return [] if self.stopped else self._splitter.feed(text)
        text = self._held + text
        at = min((i for i in (text.find(stop) for stop in self._stops) if i >= 0), default=-1)
        if at >= 0:
            self.stopped, self._held = True, ""
            return self._splitter.feed(text[:at])
        keep = len(text) - _partial(text, self._stops)
        self._held = text[keep:]
        return self._splitter.feed(text[:keep])

    def _flush_held(self) -> list[Part]:
        held, self._held = self._held, ""
        return self._splitter.feed(held)


class Pairs:
    """Splits at an opening marker at the very start and at its closing marker."""

    def __init__(self, pairs: Sequence[tuple[str, str]], *, thinking: bool, strip: bool, begun: bool = False) -> None:
        """`begun`: the reply goes on, so no marker opens it, and its white space counts."""
        self._pairs = pairs
        self._buffer = ""
        self._close = ""  # while thinking: what ends it ("": not thinking)
        self._closers = [close for _, close in pairs]
        self._started = thinking or begun
        self.thinking = thinking
        self._strip = (strip or thinking) and not begun  # drop white space before the next text

    def marker(self, marker: str) -> list[Part]:
        return self.feed(marker)

    def feed(self, text: str) -> list[Part]:
        self._buffer += text
        out: list[Part] = []
        while True:
            if not self._started:
                start = self._buffer.lstrip()
                opening = next((o for o, _ in self._pairs if start.startswith(o)), None)
                if opening is not None:
                    self._buffer = start[len(opening) :]
                    self._started = self.thinking = self._strip = True
                elif any(o.startswith(start) for o, _ in self._pairs):
                    return out
                else:
                    self._started = True
            if self._strip:
                self._buffer = self._buffer.lstrip()
                if not self._buffer:
                    return out
                self._strip = False
            if not self.thinking:
                out.append((self._buffer, False))
                self._buffer = ""
                return out
            found = [(self._buffer.find(c), c) for c in self._closers if c in self._buffer]
            if not found:
                sure = self._buffer[: len(self._buffer) - _partial(self._buffer, self._closers)].rstrip()
                out.append((sure, True))
                self._buffer = self._buffer[len(sure) :]
                return out
            at, close = min(found)
            out.append((self._buffer[:at].rstrip(), True))
            self._buffer = self._buffer[at + len(close) :]
            self.thinking, self._strip = False, True

    def finish(self) -> list[Part]:
        rest, self._buffer = self._buffer, ""
        return [(rest.rstrip() if self.thinking else rest, self.thinking)]


class Channels:
    """Splits by channel headers: <|channel|>NAME<|message|>text<|end|>. All channels but "final" are thinking."""

    def __init__(self, thinking: bool = False) -> None:
        self._header: str | None = None  # while a header is read
        self.thinking = thinking

    def marker(self, marker: str) -> list[Part]:
        if marker in (CHANNEL, START):
            self._header = ""
        elif marker == MESSAGE:
            self.thinking = bool(self._header) and not (self._header or "").strip().startswith("final")
            self._header = None
        elif marker == END:
            self._header = ""
        return []

    def feed(self, text: str) -> list[Part]:
        if self._header is not None:
            self._header += text
            return []
        return [(text, self.thinking)]

    def finish(self) -> list[Part]:
        return []


def _joined(parts: list[Part]) -> list[Part]:
    """Without empty texts, neighbours of one kind as one."""
    out: list[Part] = []
    for text, thinking in parts:
        if text and out and out[-1][1] == thinking:
            out[-1] = (out[-1][0] + text, thinking)
        elif text:
            out.append((text, thinking))
    return out


def _partial(text: str, markers: Sequence[str]) -> int:
    """Length of the longest end of `text` that begins, but does not complete, one of the markers."""
    longest = min(len(text), max(map(len, markers)) - 1)
    return next((n for n in range(longest, 0, -1) if any(m.startswith(text[-n:]) for m in markers)), 0)


def spelled(text: ReplyText, tokens: Sequence[int]) -> tuple[str, str]:
    """What `tokens` add to a reply: its thinking, and its own text."""
    thinking: list[str] = []
    own: list[str] = []
    for token in tokens:
        for piece, is_thinking in text.feed(token):
            (thinking if is_thinking else own).append(piece)
    return "".join(thinking), "".join(own)
