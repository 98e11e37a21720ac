"""A screen whose work may end behind its closing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from textual.css.query import NoMatches
from textual.screen import Screen
from textual.worker import Worker


class Closable(Screen[Any]):
    """Mixed in before a kind of screen. Widgets go before their screen and its workers do, so work that was waiting
    for something else (the disk, the engine) can come back to a screen without them.
    """

    @property
    def gone(self) -> bool:
        """Whether it is closed, or the program ends."""
        return not self.app.is_running or self not in self.app.screen_stack

    def run_worker(self, work: Any, *args: Any, **kwargs: Any) -> Worker[Any]:
        """As in Textual; a coroutine that misses a widget because the screen is gone ends there."""
        return super().run_worker(self._while_there(work) if inspect.iscoroutine(work) else work, *args, **kwargs)

    async def _while_there(self, work: Coroutine[Any, Any, object]) -> object:
        try:
            return await work
        except NoMatches:
            if self.gone:
                return None
            raise

    def draw_soon(self, draw: Callable[[], object]) -> None:
        """Calls `draw` after the next refresh, when sizes are known."""
        self.call_after_refresh(lambda: None if self.gone else draw())
