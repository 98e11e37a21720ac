"""Which side panels are shown: beside the chat where there is room, over it where there is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

ENGINE, CHATS = "engine", "chats"
BESIDE_FROM = {ENGINE: 100, CHATS: 160}  # width in cells from which a panel is beside the chat


@dataclass(slots=True)
class Panels:
    """State without widgets; `changed` is called after each change. Only one panel is over the chat."""

    beside: dict[str, bool]  # what is wanted where there is room
    changed: Callable[[], None]
    width: int = 0
    over: str | None = None

    def is_beside(self, name: str) -> bool:
        """Whether there is room beside the chat, and the panel is wanted there."""
        return self.width >= BESIDE_FROM[name] and self.beside[name]

    def is_over(self, name: str) -> bool:
        """Whether the panel covers a part of the chat."""
        return self.over == name

    def toggle(self, name: str) -> bool:
        """Shows or hides a panel; true when that changed what is wanted beside the chat."""
        lasting = self.width >= BESIDE_FROM[name]
        if lasting:
            self.beside[name] = not self.beside[name]
        else:
            self.over = None if self.over == name else name
        self.changed()
        return lasting

    def close_over(self) -> bool:
        """Closes what is over the chat; false when nothing is."""
        if self.over is None:
            return False
        self.over = None
        self.changed()
        return True

    def resized(self, width: int) -> None:
        """A panel over the chat moves beside it once there is room."""
        self.width = width
        if self.over is not None and width >= BESIDE_FROM[self.over]:
            self.beside[self.over] = True
            self.over = None
        self.changed()
