"""From messages to a prompt, and from tokens back to text: template, stop strings, thinking channel.

The model's own template is used where it has one that works. Without one the plain format is

    <system text>

    User: <text>
    Assistant: <text>
    ...
    Assistant:

and a reply ends where the model writes a line that begins with "User:".
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import UserError
from . import llama
from .events import Message
from .templates import builtin_template, jinja_formatter
from .thinking import Variables, thinking_modes

Part = tuple[str, bool]  # (text, whether it is thinking)
PLAIN_STOPS = ("\nUser:",)
# Around thinking, at the start of a reply. The first pair always counts, the others where the template names them.
THINKING_PAIRS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<thinking>", "</thinking>"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
)
_CHANNEL, _MESSAGE, _END, _START = "<|channel|>", "<|message|>", "<|end|>", "<|start|>"
_PLAIN_INSTEAD = 'plain "User:" and "Assistant:" lines are used'
_PROBE = [{"role": "user", "content": "Hello"}]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation, up to where the reply begins. `thinking`: the prompt has opened the thinking."""

    text: str
    tokens: list[int]
    thinking: bool


class ChatFormat:
    """One model's way to write a conversation."""

    def __init__(self, model: llama.Model) -> None:
        self.notices: list[str] = []  # what is done in place of the model's own template, one sentence each
        self._model = model
        self._bos = model.token_text(model.bos)
        template = model.chat_template()
        self._plain = False
        self._merge_system = False
        self.thinking: dict[str, Variables] = {}  # the ways of thinking that the template knows
        self._variables: Variables = {}
        self._render = self._choose(template)
        named = [p for p in THINKING_PAIRS[1:] if template and p[1] in template]
        self._pairs = (THINKING_PAIRS[0], *named)
        self._channels = bool(template) and _CHANNEL in (template or "") and _MESSAGE in (template or "")
        markers = [m for pair in self._pairs for m in pair]
        if self._channels:
            markers += [_CHANNEL, _MESSAGE, _END, _START]
        self._markers = {}
        for marker in markers:
            ids = model.tokenize(marker)
            if len(ids) == 1:
                self._markers[ids[0]] = marker

    def think(self, word: str | None) -> None:
        """From here on prompts ask for this way of thinking; None: the template's own."""
        if word is not None and word not in self.thinking:
            known = f"it knows {', '.join(self.thinking)}" if self.thinking else "it knows none"
            self.notices.append(f"Thinking {word} is not used: the model's chat template does not know it; {known}.")
        self._variables = self.thinking.get(word or "", {})

    def prompt(self, messages: Sequence[Message]) -> Prompt:
        """Renders and tokenizes; raises UserError when the template refuses the conversation."""
        turns = [{"role": m.role, "content": m.text} for m in messages]
        if self._merge_system:
            turns = _without_system(turns)
        try:
            text = self._render(turns)
        except Exception as error:  # templates are foreign code and raise anything
            merged = _without_system(turns)
            if merged == turns:
                raise UserError(f"The model's chat template refuses this conversation: {error}.") from error
            try:
                text = self._render(merged)
            except Exception:
                raise UserError(f"The model's chat template refuses this conversation: {error}.") from error
            self._merge_system = True
            self.notices.append(
                "The model's chat template has no system role, so the system text goes before the first message."
            )
        tokens = self._model.tokenize(text)
        if self._model.adds_bos and (not tokens or tokens[0] != self._model.bos):
            tokens.insert(0, self._model.bos)
        end = text.rstrip()
        return Prompt(text, tokens, any(end.endswith(opening) for opening, _ in self._pairs))

    def reply(self, *, thinking: bool = False) -> ReplyText:
        """Turns the tokens of one reply into text; `thinking` as in its Prompt."""
        splitter = _Channels() if self._channels else _Pairs(self._pairs, thinking=thinking, strip=self._plain)
        return ReplyText(self._model.piece, self._markers, splitter, PLAIN_STOPS if self._plain else ())

    def take_notices(self) -> list[str]:
        """Notices since the last call."""
        taken, self.notices = self.notices, []
        return taken

    def _choose(self, template: str | None) -> Callable[[list[dict[str, str]]], str]:
        if template:
            try:
                render = jinja_formatter(template, bos=self._bos, eos=self._model.token_text(self._model.eos))
                render(_PROBE)
                self.thinking = thinking_modes(template, lambda variables: render(_PROBE, variables))
                return lambda turns: render(turns, self._variables)
            except Exception as error:
                if builtin_template(template, _PROBE) is not None:
                    self.notices.append(
                        f"The model's chat template does not work here ({error}): llama.cpp's nearest one is used."
                    )
                    return lambda turns: builtin_template(template, turns) or ""
                self.notices.append(f"The model's chat template does not work here ({error}): {_PLAIN_INSTEAD}.")
        else:
            self.notices.append(f"The model has no chat template: {_PLAIN_INSTEAD}.")
        self._plain = True
        return _plain


class ReplyText:
    """Text of one reply, token by token. Never emits half a UTF-8 character, nor half a marker."""

    def __init__(
        self,
        piece: Callable[[int], bytes],
        markers: dict[int, str],
        splitter: _Channels | _Pairs,
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


class _Pairs:
    """Splits at an opening marker at the very start and at its closing marker."""

    def __init__(self, pairs: Sequence[tuple[str, str]], *, thinking: bool, strip: bool) -> None:
        self._pairs = pairs
        self._buffer = ""
        self._close = ""  # while thinking: what ends it ("": not thinking)
        self._closers = [close for _, close in pairs]
        self._started = thinking
        self._thinking = thinking
        self._strip = strip or thinking  # drop white space before the next text

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
                    self._started = self._thinking = self._strip = True
                elif any(o.startswith(start) for o, _ in self._pairs):
                    return out
                else:
                    self._started = True
            if self._strip:
                self._buffer = self._buffer.lstrip()
                if not self._buffer:
                    return out
                self._strip = False
            if not self._thinking:
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
            self._thinking, self._strip = False, True

    def finish(self) -> list[Part]:
        rest, self._buffer = self._buffer, ""
        return [(rest.rstrip() if self._thinking else rest, self._thinking)]


class _Channels:
    """Splits by channel headers: <|channel|>NAME<|message|>text<|end|>. All channels but "final" are thinking."""

    def __init__(self) -> None:
        self._header: str | None = None  # while a header is read
        self._thinking = False

    def marker(self, marker: str) -> list[Part]:
        if marker in (_CHANNEL, _START):
            self._header = ""
        elif marker == _MESSAGE:
            self._thinking = bool(self._header) and not (self._header or "").strip().startswith("final")
            self._header = None
        elif marker == _END:
            self._header = ""
        return []

    def feed(self, text: str) -> list[Part]:
        if self._header is not None:
            self._header += text
            return []
        return [(text, self._thinking)]

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


def _without_system(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """System texts before the first user message's text."""
    system = "\n\n".join(t["content"] for t in turns if t["role"] == "system")
    rest = [dict(t) for t in turns if t["role"] != "system"]
    first = next((t for t in rest if t["role"] == "user"), None)
    if system and first is not None:
        first["content"] = f"{system}\n\n{first['content']}"
    return rest


def _plain(turns: list[dict[str, str]]) -> str:
    names = {"user": "User: ", "assistant": "Assistant: "}
    lines = [names.get(t["role"], "") + t["content"] + ("\n" if t["role"] not in names else "") for t in turns]
    return "\n".join([*lines, "Assistant:"])
