"""The shown chat's options: reading them through all layers, and setting them for the chat, the model or all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..config import Given, save
from ..engine.events import ModelInfo, Sampling
from ..parameters import Layers, Scope, Source, Value, checked, shown
from .chat import Chat

if TYPE_CHECKING:
    from .screens.chat import ChatScreen

_SETTINGS = (Scope.MODEL, Scope.ALL)  # kept in the settings file


class Options:
    """A chat keeps its system prompt as it was when it began; the other options are looked up for each reply."""

    def __init__(self, screen: ChatScreen, given: Given) -> None:
        self._screen = screen
        self._layers = Layers(given)
        self._writing = asyncio.Lock()

    @property
    def model(self) -> ModelInfo | None:
        """The loaded model."""
        return self._screen.model

    def sampling(self, chat: Chat) -> Sampling:
        """What a reply in that chat is generated with."""
        return self._layers.sampling(self.model, checked(chat.options))

    def system(self) -> str:
        """The system prompt of a new chat."""
        return str(self._layers.value("system", self.model, {}).value)

    def value(self, name: str) -> Value:
        """The value in force in the shown chat."""
        chat = self._screen.chat
        if name == "system" and chat.system != self.system():
            return Value(chat.system, Source.CHAT)
        return self._layers.value(name, self.model, checked(chat.options))

    def thinking(self) -> Value:
        """How the next reply in the shown chat thinks: a word that the model's template does not know is not used."""
        value = self.value("thinking")
        known = self.model.thinking if self.model else ()
        return value if value.value in known else Value(None, Source.DEFAULT)

    def at(self, scope: Scope, name: str) -> Any:
        """What is set for that scope itself, None when nothing is."""
        chat = self._screen.chat
        if scope is Scope.CHAT and name == "system":
            return chat.system if chat.system != self.system() else None
        return self._layers.at(scope, name, self.model, checked(chat.options))

    def origin(self, name: str) -> str:
        """Where the value in force comes from, in words."""
        return self.origin_of(name, self.value(name))

    def origin_of(self, name: str, value: Value) -> str:
        """The same of a value."""
        return self._layers.origin(name, value.source)

    async def put(self, scope: Scope, name: str, value: Any) -> None:
        """Sets an option; None takes it back. Raises UserError when it cannot be kept."""
        chat, before = self._screen.chat, self.system()
        if scope is Scope.CHAT:
            if name == "system":
                await self._set_system(chat, before if value is None else str(value))
            else:
                await self._set_own(chat, name, value)
            return
        section = self._layers.keep(scope, name, value, self.model)
        async with self._writing:
            await asyncio.to_thread(save, {name: value}, self._screen.settings_file, section)
        self._screen.show_thinking()
        if name == "system" and chat.system == before:
            await self._set_system(chat, self.system())

    def begin(self, before: str) -> None:
        """Another model was loaded: a chat in which nothing was said yet begins with that one's system prompt.

        `before`: what `system` was until then.
        """
        chat = self._screen.chat
        if chat.session is None and not chat.turns and chat.system == before:
            chat.system = self.system()

    async def _set_system(self, chat: Chat, text: str) -> None:
        chat.system = text
        if chat.session is not None:
            await asyncio.wrap_future(self._screen.store.set_system(chat.session, text))

    async def _set_own(self, chat: Chat, name: str, value: Any) -> None:
        if value is None:
            chat.options.pop(name, None)
        else:
            chat.options[name] = value
        self._screen.show_thinking()
        if chat.session is not None:
            await asyncio.wrap_future(self._screen.store.set_options(chat.session, chat.options))


def thinking_text(options: Options, key: str) -> str | None:
    """`thinking low (this chat), alt+k`; None where the model's template has no choice."""
    if options.model is None or not options.model.thinking:
        return None
    value = options.thinking()
    return f"thinking {shown(value.value)} ({options.origin_of('thinking', value)}), {key}"
