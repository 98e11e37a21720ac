"""The chat's messages, one of which is selected while the transcript has the focus."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.events import Click
from textual.widget import Widget

from ..actions import Where, bindings
from ..chat import Turn
from .message_view import MessageView
from .message_window import MessageWindow


class Transcript(MessageWindow):
    """Moves by message; one that is higher than the window is gone through in parts first."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.TRANSCRIPT)]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._selected: Turn | None = None

    @property
    def selected(self) -> Turn | None:
        """The message that keys are for; None without the focus."""
        return self._selected if self.has_focus and self._view is not None else None

    def select(self, turn: Turn | None, *, scroll: bool = True) -> None:
        """Selects a mounted message, and scrolls to it if it is not in view."""
        if (view := self._view) is not None:
            view.remove_class("-selected")
        self._selected = turn
        if (view := self._view) is not None:
            view.set_class(self.has_focus, "-selected")
            if scroll:
                self._bring(view, from_above=False)
        self.screen.refresh_bindings()  # other keys do something with it

    async def move(self, step: int) -> bool:
        """Selects the message above (-1) or below (1), or scrolls a part of a high one; false at the very end."""
        view = self._view
        if view is None:
            self._select_visible()
            return True
        top, bottom = self._span(view)
        height = self.scrollable_content_region.height
        part = max(1, height - 2)
        if step < 0 and top < self.scroll_y:
            self.scroll_to(y=max(top, self.scroll_y - part), animate=False, immediate=True)
            return True
        if step > 0 and bottom > self.scroll_y + height:
            self.scroll_to(y=min(bottom - height, self.scroll_y + part), animate=False, immediate=True)
            return True
        older = step < 0 and view is self._views[0]
        if older:
            await self.load_older()
        elif step > 0 and view is self._views[-1]:
            await self.load_later()
        index = self._views.index(view) + step
        if not 0 <= index < len(self._views):
            if step > 0:
                self.follow()
            else:
                self.scroll_home(animate=False)
            return False
        self.select(self._views[index].turn, scroll=False)
        if older:  # after what was in view is in its place again
            self.call_after_refresh(self._bring, self._views[index], from_above=False)
        else:
            self._bring(self._views[index], from_above=step > 0)
        return True

    async def select_first(self) -> None:
        """To the chat's first message."""
        if self._first > 0:
            await self._go_to(0)
        if self._views:
            self.select(self._views[0].turn, scroll=False)
        self.scroll_home(animate=False)

    async def select_last(self) -> None:
        """To the end, which is followed."""
        await self.go_to_end()
        if self._views:
            self.select(self._views[-1].turn, scroll=False)

    def fold_selected(self) -> None:
        """Folds or unfolds the selected message's thinking."""
        if (view := self._view) is not None:
            self.before_growth()
            self.no_news()
            view.fold(view.unfolded)

    # Inside

    @property
    def _view(self) -> MessageView | None:
        return None if self._selected is None else self.view_of(self._selected)

    def _select_visible(self) -> None:
        """Selects the last message that is in view."""
        end = self.scroll_y + self.scrollable_content_region.height
        shown = [view for view in self._views if self._span(view)[0] < end]
        if shown:
            self.select(shown[-1].turn, scroll=False)

    def _span(self, view: MessageView) -> tuple[int, int]:
        """First line of a message, and the one past its last, counted from the start of what is mounted."""
        top = self._messages.virtual_region.y + view.virtual_region.y
        return top, top + view.virtual_region.height

    def _bring(self, view: MessageView, *, from_above: bool) -> None:
        """Scrolls as little as needed to have a message in view; of a high one, the part nearest to the last one."""

        def bring() -> None:
            top, bottom = self._span(view)
            height = self.scrollable_content_region.height
            if bottom - top > height:
                place = top if from_above else bottom - height
            elif top < self.scroll_y:
                place = top
            elif bottom > self.scroll_y + height:
                place = bottom - height
            else:
                return
            self.scroll_to(y=place, animate=False, immediate=True)

        if view.virtual_region.height:
            bring()
        else:  # just mounted
            self.call_after_refresh(bring)

    def on_focus(self) -> None:
        if self._view is None:
            self._select_visible()
        if (view := self._view) is not None:  # the widget has the focus once this is done
            view.add_class("-selected")

    def on_blur(self) -> None:
        if (view := self._view) is not None:
            view.remove_class("-selected")
        self._selected = None

    def on_click(self, event: Click) -> None:
        widget: Widget | None = event.widget
        while widget is not None and not isinstance(widget, MessageView):
            widget = widget.parent if isinstance(widget.parent, Widget) else None
        if widget is not None:
            self.select(widget.turn, scroll=False)
