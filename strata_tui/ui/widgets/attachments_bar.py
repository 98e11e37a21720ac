"""The prompt's attachments, one folded label each, above the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.content import Content
from textual.events import Click
from textual.style import Style
from textual.widgets import Static

from ..actions import Where, bindings
from ..attachments import Attachment
from .rows import cursor_style


class AttachmentsBar(Static, can_focus=True):
    """Hidden while there are none. With the focus, one label is chosen, and the keys of its area count."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.ATTACHMENTS)]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._labels: list[str] = []
        self._chosen = 0
        self.display = False

    @property
    def chosen(self) -> int:
        """The index of the chosen attachment."""
        return self._chosen

    def show(self, attachments: Sequence[Attachment]) -> None:
        """Shows these; the last one is chosen when one has come."""
        came = len(attachments) > len(self._labels)
        self._labels = [one.label for one in attachments]
        last = max(0, len(self._labels) - 1)
        self._chosen = last if came else min(self._chosen, last)
        self.display = bool(self._labels)
        self._draw()

    def move(self, by: int) -> None:
        """Chooses the one after or before, and from the last the first."""
        if self._labels:
            self._chosen = (self._chosen + by) % len(self._labels)
            self._draw()

    def watch_has_focus(self, _has_focus: bool) -> None:
        """The chosen label is marked while it has the keys."""
        super().watch_has_focus(_has_focus)
        self._draw()

    def on_click(self, event: Click) -> None:
        """Chooses the label that was clicked."""
        target = event.style.meta.get("attachment")
        if isinstance(target, int):
            self._chosen = target
            self._draw()

    def _draw(self) -> None:
        parts = []
        for number, label in enumerate(self._labels):
            style = cursor_style(self) if self.has_focus and number == self._chosen else "$secondary"
            parts.append(Content.styled(label, style).stylize(Style.from_meta({"attachment": number})))
        self.update(Content(" ").join(parts))
