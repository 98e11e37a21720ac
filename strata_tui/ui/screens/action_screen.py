"""A screen over the chat whose keys come from the table of actions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Generic, TypeVar

from textual.screen import ModalScreen

from ...errors import UserError

R = TypeVar("R")


class ActionScreen(ModalScreen[R], Generic[R]):
    """Does an action by its method `do_` and the id; what goes wrong is told in one sentence by `tell`."""

    VERTICAL_BREAKPOINTS = [(0, "-short"), (22, "-high")]

    async def action_perform(self, action: str) -> None:
        """What every binding calls; `action` is an id of the table."""
        try:
            waiting = getattr(self, f"do_{action}")()
            if inspect.isawaitable(waiting):
                await waiting
        except UserError as error:
            self.tell(str(error), error=True)

    @property
    def gone(self) -> bool:
        """Whether it is closed. Its widgets may be gone then, so what waited for something else asks this first."""
        return self not in self.app.screen_stack

    def draw_soon(self, draw: Callable[[], object]) -> None:
        """Calls `draw` after the next refresh, when sizes are known."""
        self.call_after_refresh(lambda: None if self.gone else draw())

    def tell(self, text: str, error: bool = False) -> None:
        """Shows one sentence."""
        raise NotImplementedError
