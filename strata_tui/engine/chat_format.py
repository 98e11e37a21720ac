"""From messages to a prompt: the chat template, and how a reply that was begun is gone on with.

The model's own template is used where it has one that works. Without one the plain format is

    <system text>

    User: <text>
    Assistant: <text>
    ...
    Assistant:

and a reply ends where the model writes a line that begins with "User:".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import UserError
from . import llama
from .events import Message
from .reply_text import CHANNEL, END, MESSAGE, START, Channels, Pairs, ReplyText, spelled
from .templates import builtin_template, jinja_formatter
from .thinking import Variables, thinking_modes

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
_ON_LINES = ("<think>", "<thinking>", "<|channel>thought")  # stand on lines of their own
_CUT = "\ue000cut\ue000"  # where a rendered reply is cut off; private characters, which no template reads
_PLAIN_INSTEAD = 'plain "User:" and "Assistant:" lines are used'
_PROBE = [{"role": "user", "content": "Hello"}]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation, up to where the reply begins. `thinking`: the prompt has opened the thinking."""

    text: str
    tokens: list[int]
    thinking: bool
    history: int = 0  # tokens up to the end of the last reply in it
    opening: int = 0  # tokens at its end that open the thinking, or leave it out: later prompts may not have them


@dataclass(frozen=True, slots=True)
class Begun:
    """A prompt that ends in the middle of a reply, and what turns the reply's further tokens into text.

    `exact`: the tokens are those that the model wrote, not its text read again.
    """

    tokens: list[int]
    text: ReplyText
    exact: bool


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
        self._named = [p for p in THINKING_PAIRS if template and (p[0] in template or p[1] in template)]
        self._channels = bool(template) and CHANNEL in (template or "") and MESSAGE in (template or "")
        markers = [m for pair in self._pairs for m in pair]
        if self._channels:
            markers += [CHANNEL, MESSAGE, END, START]
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
        turns = self._turns(messages)
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
        tokens = self._tokens(text)
        told = _end_of_history(text, turns)
        history = max(0, len(tokens) - len(self._model.tokenize(text[told:]))) if told else 0
        return Prompt(text, tokens, self._opened(text) is not None, history, self._opening(text))

    def reply(self, *, thinking: bool = False) -> ReplyText:
        """Turns the tokens of one reply into text; `thinking` as in its Prompt."""
        splitter = Channels() if self._channels else Pairs(self._pairs, thinking=thinking, strip=self._plain)
        return self._reply_text(splitter)

    def go_on(self, messages: Sequence[Message], reply: Message, last: Sequence[int]) -> Begun:
        """The prompt of `messages` and of `reply`, which was begun and is not closed: no end-of-turn token follows it.

        Where the `last` tokens that were read and written are this prompt and spell this reply, they are taken: the
        model then goes on as if it had never stopped. Else the reply is what the chat template makes of it.
        Raises UserError where the template cannot say what the reply is.
        """
        prompt = self.prompt(messages)
        own = last[len(prompt.tokens) :]
        if list(last[: len(prompt.tokens)]) == prompt.tokens and own:
            text = self.reply(thinking=prompt.thinking)
            if spelled(text, own) == (reply.thinking, reply.text) and not text.stopped:
                return Begun(list(last), text, exact=True)
        inside = bool(reply.thinking and not reply.text)  # cut off while it was thinking
        whole = self._rendered(messages, reply, prompt.text) or prompt.text + self._written(prompt.text, reply)
        splitter = Channels(inside) if self._channels else Pairs(self._pairs, thinking=inside, strip=False, begun=True)
        return Begun(self._tokens(whole), self._reply_text(splitter), exact=False)

    def _rendered(self, messages: Sequence[Message], reply: Message, before: str) -> str | None:
        """The template's rendering up to the end of `reply`; None where it is no continuation of `before`.

        Templates may leave out a reply's thinking or close an unfinished one: then it is none.
        """
        inside = bool(reply.thinking and not reply.text)
        turn = {"role": "assistant", "content": reply.text + ("" if inside else _CUT)}
        if reply.thinking:
            turn["reasoning_content"] = reply.thinking + (_CUT if inside else "")
        try:
            text, cut, _ = self._render([*self._turns(messages), turn]).partition(_CUT)
        except Exception:  # templates are foreign code and raise anything
            return None
        fits = text.startswith(before) and text.endswith(reply.thinking if inside else reply.text)
        return text if cut and fits and reply.thinking in text[len(before) :] else None

    def _written(self, before: str, reply: Message) -> str:
        """What follows `before`, where the template itself cannot render an unfinished reply."""
        thinking, text = reply.thinking, reply.text
        if self._channels:
            if not before.rstrip().endswith(f"{START}assistant"):
                raise UserError(
                    "This reply cannot be gone on with: the model's chat template begins replies in a way that is not "
                    "known here. Write it anew instead."
                )
            final = f"{CHANNEL}final{MESSAGE}{text}"
            if not thinking:
                return final
            first = f"{CHANNEL}analysis{MESSAGE}{thinking}"
            return f"{first}{END}{START}assistant{final}" if text else first
        opened = self._opened(before)
        pair = opened or (self._named[0] if self._named else None)
        if pair is None and thinking and not text:
            raise UserError(
                "This reply was stopped while it was thinking, and this model's chat template has no thinking to go on "
                "with. Write it anew instead."
            )
        if pair is None or not (thinking or opened):
            return f" {text}" if self._plain else text
        opening, closing = pair
        line = "\n" if opening in _ON_LINES else ""
        begin = opening + line
        if opened is not None:  # by the prompt itself
            begin = "" if before.endswith("\n") else line
        return begin + thinking + (f"{line}{closing}{line}{line}{text}" if text else "")

    def _turns(self, messages: Sequence[Message]) -> list[dict[str, str]]:
        turns = [{"role": m.role, "content": m.text} for m in messages]
        return _without_system(turns) if self._merge_system else turns

    def _tokens(self, text: str) -> list[int]:
        tokens = self._model.tokenize(text)
        if self._model.adds_bos and (not tokens or tokens[0] != self._model.bos):
            tokens.insert(0, self._model.bos)
        return tokens

    def _opened(self, text: str) -> tuple[str, str] | None:
        """The pair whose opening marker ends `text`."""
        end = text.rstrip()
        return next((pair for pair in self._pairs if end.endswith(pair[0])), None)

    def _opening(self, text: str) -> int:
        """Tokens at the end of `text` that are markers of thinking, and one more, with which they may be one token."""
        for pair in self._pairs:
            at = text.rfind(pair[0])
            if at >= 0 and not text[at:].replace(pair[0], "").replace(pair[1], "").strip():
                return len(self._model.tokenize(text[at:])) + 1
        return 0

    def _reply_text(self, splitter: Channels | Pairs) -> ReplyText:
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


def _end_of_history(text: str, turns: list[dict[str, str]]) -> int:
    """Where in a rendered conversation its last reply ends; 0 where it has none, or the template changed its text."""
    last = next((i for i in range(len(turns) - 1, -1, -1) if turns[i]["role"] == "assistant"), None)
    if last is None:
        return 0
    reply, asked = turns[last]["content"].strip(), "".join(t["content"].strip() for t in turns[last + 1 : last + 2])
    limit = text.rfind(asked) if asked else len(text)
    at = text.rfind(reply, 0, limit) if reply and limit >= 0 else -1
    return at + len(reply) if at >= 0 else 0


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
