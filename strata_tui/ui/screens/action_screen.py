"""A screen over the chat whose keys come from the table of actions."""

from __future__ import annotations

import inspect
from typing import Generic, TypeVar

from textual.content import Content
from textual.screen import ModalScreen

from ...errors import UserError
from .closable import Closable

R = TypeVar("R")


def sentence(text: str, error: bool, style: str = "") -> Content:
    """What a page tells. An error is marked as everywhere else, for it must be told without colour, too."""
    return Content.styled(f"! {text}", "$error") if error else Content.styled(text, style)


class ActionScreen(Closable, ModalScreen[R], Generic[R]):
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

    def tell(self, text: str, error: bool = False) -> None:
        """Shows one sentence."""
        raise NotImplementedError
