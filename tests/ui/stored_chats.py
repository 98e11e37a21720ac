"""Chats that are in the store before they are shown, and an app that needs no model to show them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from strata_tui.sessions.portable import PortableChat, PortableMessage
from strata_tui.sessions.rows import Role

if TYPE_CHECKING:
    from tests.ui.conftest import Running, Start


def line(title: str, *texts: str, age: float = 0.0, pinned: bool = False) -> PortableChat:
    """A chat of one branch, both sides in turn."""
    when = time.time() - age
    messages = [
        PortableMessage(n - 1 if n else None, (Role.USER, Role.ASSISTANT)[n % 2], text, when, when, model="tiny")
        for n, text in enumerate(texts)
    ]
    return PortableChat(title, when, when, tuple(messages), len(texts) - 1 if texts else None, pinned=pinned)


def fill(run: Running, *chats: PortableChat) -> list[int]:
    keys = run.store.add_chats(chats).result()
    assert None not in keys
    return [key for key in keys if key is not None]


@asynccontextmanager
async def without_model(start: Start, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Running]:
    """The app whose model cannot be loaded, which is quick: chats can be read, found and kept all the same."""
    async with start(load=False, size=size, model=Path("/none.gguf")) as run:
        await run.until(lambda: run.screen.failure)
        run.screen.flash.clear()
        yield run
