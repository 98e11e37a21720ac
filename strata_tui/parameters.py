"""The options that a chat may have of its own: what each is for, and where a value comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from .config import OWN, SPECS, Given, flag_of
from .engine.events import ModelInfo, Sampling
from .engine.sampling import Resolved
from .errors import UserError

TAKE_BACK = ("", "auto", "-")  # typed in place of a value


class Scope(str, Enum):
    """For whom a value is set."""

    CHAT = "chat"
    MODEL = "model"
    ALL = "all"

    @property
    def words(self) -> str:
        """`for this chat`, and so on."""
        return {"chat": "for this chat", "model": "for this model", "all": "for all chats"}[self.value]


class Source(str, Enum):
    """Where a value comes from, in words; a higher one beats a lower one."""

    CHAT = "this chat"
    FLAG = "flag"
    ENVIRONMENT = "environment"
    MODEL = "settings, this model"
    FILE = "settings"
    MODEL_FILE = "the model's file"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One option. `about` says what it does, and which value does nothing."""

    name: str
    label: str
    about: str

    @property
    def allowed(self) -> str:
        """The range in words."""
        if self.name == "thinking":
            return "a word that the model's chat template knows, or auto"
        return SPECS[self.name].allowed()


@dataclass(frozen=True, slots=True)
class Value:
    """A value and where it comes from; `value` None: left to the engine (see `shown`)."""

    value: Any
    source: Source


PARAMETERS: tuple[Parameter, ...] = (
    Parameter("system", "system prompt", "What the model is told before the conversation begins."),
    Parameter("thinking", "thinking", "Whether, or how long, the model thinks before it answers."),
    Parameter("temperature", "temperature", "How freely a token is chosen. 0: always the likeliest."),
    Parameter("top_k", "top-k", "Only so many of the likeliest tokens are candidates. 0: all."),
    Parameter("top_p", "top-p", "Only the likeliest tokens that together are this probable. 1: all."),
    Parameter("min_p", "min-p", "Only tokens at least this share as probable as the likeliest. 0: all."),
    Parameter(
        "top_n_sigma", "top-n-sigma", "Only tokens within so many standard deviations of the best logit. 0: all."
    ),
    Parameter("typical_p", "typical-p", "Only tokens about as surprising as expected, this probable together. 1: all."),
    Parameter("repeat_penalty", "repeat penalty", "Makes tokens that were there lately less likely. 1: off."),
    Parameter("presence_penalty", "presence penalty", "Lowers the logit of each token that was there lately. 0: off."),
    Parameter("frequency_penalty", "frequency penalty", "The same, for each time it was there. 0: off."),
    Parameter("penalty_window", "penalty window", "How many of the last tokens the penalties look at. 0: none."),
    Parameter("seed", "seed", "The same seed, text and options give the same reply. auto: another one each time."),
    Parameter("max_tokens", "longest reply", "In tokens. auto: as long as there is context."),
)
BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}
assert tuple(sorted(BY_NAME)) == tuple(sorted(OWN))


def named(text: str) -> Parameter:
    """The parameter of this name, in any spelling: top-p, top_p. Raises UserError."""
    found = BY_NAME.get(text.lower().replace("-", "_"))
    if found is None:
        raise UserError(f"There is no option {text}; the options are {', '.join(BY_NAME)}.")
    return found


def typed_value(name: str, text: str, model: ModelInfo | None = None) -> Any:
    """The value of a typed text; None takes the scope's own value back. Raises UserError."""
    if name != "system":
        text = text.strip()
        if text.lower() in TAKE_BACK:
            return None
    if name == "thinking":
        text = text.lower()
        if model is not None and text not in model.thinking:
            known = ", ".join(model.thinking)
            why = f"it knows {known}" if known else "it has no variable for that"
            raise UserError(f"{model.name}'s chat template does not know thinking {text}: {why}.")
    try:
        return SPECS[name].parse(text)
    except ValueError:
        raise UserError(f"{BY_NAME[name].label} is {text!r}; allowed: {BY_NAME[name].allowed}.") from None


def checked(options: Mapping[str, object]) -> dict[str, Any]:
    """A stored chat's options without what cannot be used, as a newer or a broken program may have stored it."""
    good: dict[str, Any] = {}
    for name, value in options.items():
        if name in OWN and name != "system" and value is not None:
            try:
                good[name] = SPECS[name].check(value)
            except ValueError:
                continue
    return good


def shown(value: object) -> str:
    """A value as text, on one line."""
    if value is None:
        return "auto"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return " ".join(text.split())


class Layers:
    """All that was given, and how it adds up for one model and one chat. Plain values, no input or output."""

    def __init__(self, given: Given) -> None:
        self.given = given

    def section(self, model: ModelInfo | None) -> str | None:
        """The name of the settings file's section for a model: by its key, its name, or its file's name."""
        if model is None:
            return None
        stem = model.path.rpartition("/")[2].removesuffix(".gguf")
        for name in self.given.per_model:
            if name.lower() in (model.name.lower(), stem.lower()) or (len(name) >= 8 and model.key.startswith(name)):
                return name
        return None

    def at(self, scope: Scope, name: str, model: ModelInfo | None, chat: Mapping[str, Any]) -> Any:
        """What is set for a scope, None when nothing is."""
        if scope is Scope.CHAT:
            return chat.get(name)
        if scope is Scope.ALL:
            return self.given.file.get(name)
        return self.given.per_model.get(self.section(model) or "", {}).get(name)

    def keep(self, scope: Scope, name: str, value: Any, model: ModelInfo | None) -> str:
        """Has a value count for a model or for all, None take it back; the section of the settings file to save it in.

        Raises UserError where there is no model to set it for.
        """
        section = ""
        if scope is Scope.MODEL:
            if model is None:
                raise UserError("No model is loaded, so nothing can be set for it: /model loads one.")
            section = self.section(model) or model.name
        table = self.given.per_model.setdefault(section, {}) if section else self.given.file
        if value is None:
            table.pop(name, None)
        else:
            table[name] = value
        return section

    def value(self, name: str, model: ModelInfo | None, chat: Mapping[str, Any]) -> Value:
        """The value in force. `chat`: the chat's own options."""
        given = self.given
        if (own := chat.get(name)) is not None:
            return Value(own, Source.CHAT)
        for source, table in ((Source.FLAG, given.flags), (Source.ENVIRONMENT, given.environment)):
            if name in table:
                if table[name] is None:  # auto: as if the settings file said nothing
                    break
                return Value(table[name], source)
        else:
            for source, scope in ((Source.MODEL, Scope.MODEL), (Source.FILE, Scope.ALL)):
                if (value := self.at(scope, name, model, chat)) is not None:
                    return Value(value, source)
        recommended = dict(model.recommended) if model else {}
        if name in recommended:
            return Value(recommended[name], Source.MODEL_FILE)
        return Value("" if name == "system" else getattr(Resolved(), name, None), Source.DEFAULT)

    def origin(self, name: str, source: Source) -> str:
        """Where a value comes from, with the flag's or variable's name."""
        if source is Source.FLAG:
            return f"flag {flag_of(name)}"
        if source is Source.ENVIRONMENT:
            return f"STRATA_TUI_{name.upper()}"
        return str(source.value)

    def sampling(self, model: ModelInfo | None, chat: Mapping[str, Any]) -> Sampling:
        """Everything a reply needs, with nothing left open but the seed, the length and the template's thinking."""
        values = {f.name: self.value(f.name, model, chat).value for f in fields(Sampling)}
        if model is not None and values["thinking"] not in model.thinking:
            values["thinking"] = None  # a word set for all, or for another model
        return Sampling(**values)
