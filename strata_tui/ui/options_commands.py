"""Actions around options: the screen, and setting one by a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..parameters import BY_NAME, PARAMETERS, Scope, named, shown, typed_value
from .completion import Choice
from .screens.edit_screen import EditScreen
from .screens.options import OptionsScreen

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .screens.chat import ChatScreen


class OptionsCommands:
    """A part of Commands."""

    _screen: ChatScreen

    if TYPE_CHECKING:

        async def told(self, work: Awaitable[None]) -> None: ...

    def do_options(self, name: str) -> None:
        """Opens the screen, at an option if one is named."""
        at = named(name).name if name else ""
        self._screen.app.push_screen(OptionsScreen(self._screen.options, at))

    async def do_set(self, line: str) -> None:
        """`/set temperature 0.5`, `/set model top_k 20`, `/set all seed auto`; `/set top_p` says what it is."""
        words = line.split(maxsplit=1)
        scope = Scope.CHAT
        if words and words[0].lower() in tuple(s.value for s in Scope):
            scope = Scope(words[0].lower())
            words = words[1].split(maxsplit=1) if len(words) > 1 else []
        if not words:
            self.do_options("")
            return
        parameter = named(words[0])
        if len(words) == 1:
            self._say(parameter.name)
            return
        await self._put(scope, parameter.name, typed_value(parameter.name, words[1], self._screen.model))

    async def do_system(self, text: str) -> None:
        """Sets the chat's system prompt, or opens it."""
        if text:
            await self._put(Scope.CHAT, "system", text)
            return

        async def keep(edited: str | None) -> None:
            if edited is not None:
                await self.told(self._put(Scope.CHAT, "system", edited))

        now = str(self._screen.options.value("system").value)
        self._screen.app.push_screen(EditScreen("System prompt for this chat", now), keep)

    async def do_thinking(self, word: str) -> None:
        """Sets how this chat's model thinks; without a word the next way that the template knows."""
        model = self._screen.model
        if model is None:
            raise UserError("No model is loaded: /model loads one.")
        if not word:
            if not model.thinking:
                raise UserError(f"{model.name}'s chat template has no variable for thinking.")
            ways: list[Any] = [None, *model.thinking]
            now = self._screen.options.at(Scope.CHAT, "thinking")
            await self._put(Scope.CHAT, "thinking", ways[(ways.index(now) + 1) % len(ways)] if now in ways else None)
            return
        await self._put(Scope.CHAT, "thinking", typed_value("thinking", word, model))

    async def _put(self, scope: Scope, name: str, value: Any) -> None:
        await self._screen.options.put(scope, name, value)
        self._say(name)

    def _say(self, name: str) -> None:
        options, label = self._screen.options, BY_NAME[name].label
        value = options.thinking() if name == "thinking" else options.value(name)
        text = shown(value.value) or "none"
        text = text if len(text) <= 60 else text[:59] + "…"
        later = " From the next reply on." if self._screen.turns.busy else ""
        self._screen.flash.say(f"{label[:1].upper()}{label[1:]}: {text} ({options.origin_of(name, value)}).{later}")

    def set_choices(self, typed: str) -> list[Choice]:
        """Completions of what follows /set."""
        *before, last = typed.split(" ")
        if any(word not in tuple(s.value for s in Scope) for word in before):
            return []
        lead = "".join(f"{word} " for word in before)
        names = [Choice(lead + p.name, p.about) for p in PARAMETERS]
        scopes = [] if before else [Choice(f"{s.value} ", s.words, more=True) for s in Scope]
        start = lead + last.replace("-", "_").lower()
        return [choice for choice in [*names, *scopes] if choice.text.startswith(start)]

    def thinking_choices(self, typed: str) -> list[Choice]:
        """Completions of what follows /thinking."""
        known = self._screen.model.thinking if self._screen.model else ()
        return [Choice(word) for word in (*known, "auto") if word.startswith(typed.lower())]
