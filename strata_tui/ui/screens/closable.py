"""A screen whose work may end behind its closing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.css.query import NoMatches
from textual.worker import Worker

if TYPE_CHECKING:
    from textual.screen import Screen

    _Screen = Screen[Any]
else:
    _Screen = object  # a node's styles are inherited through its first base that is a node; that is not this one


class Closable(_Screen):
    """Mixed in before a kind of screen. Widgets go before their screen and its workers do, so work that was waiting
    for something else (the disk, the engine) can come back to a screen without them.
    """

    @property
    def gone(self) -> bool:
        """Whether it is closed, or the program ends."""
        return not self.app.is_running or self not in self.app.screen_stack

    def run_worker(self, work: Any, *args: Any, **kwargs: Any) -> Worker[Any]:
        """As in Textual; work that misses a widget because the screen is gone ends there."""
        guarded = work if kwargs.get("thread") else partial(self._while_there, work)
        return super().run_worker(guarded, *args, **kwargs)

    async def _while_there(self, work: Any) -> object:
        """`work`: a coroutine, or what makes one."""
        try:
            return await (work() if callable(work) else work)
        except NoMatches:
            if self.gone:
                return None
            raise

    def draw_soon(self, draw: Callable[[], object]) -> None:
        """Calls `draw` after the next refresh, when sizes are known."""
        self.call_after_refresh(lambda: None if self.gone else draw())
