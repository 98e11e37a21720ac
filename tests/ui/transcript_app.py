"""An app of a transcript alone, for tests of what it shows."""

from __future__ import annotations

from pathlib import Path

from textual.app import App, ComposeResult
from textual.pilot import Pilot

import strata_tui.ui.screens.chat as chat_screen
from strata_tui.sessions.rows import Role, Status
from strata_tui.ui.chat import Turn
from strata_tui.ui.themes import load_themes, own_folder
from strata_tui.ui.widgets.chunks import Piece
from strata_tui.ui.widgets.message_view import MessageView
from strata_tui.ui.widgets.message_window import WINDOW
from strata_tui.ui.widgets.transcript import Transcript


class TranscriptApp(App[None]):
    CSS_PATH = [Path(chat_screen.__file__).parent / path for path in chat_screen.ChatScreen.CSS_PATH]

    def __init__(self, turns: list[Turn]) -> None:
        super().__init__()
        self.turns = turns
        self.unseen = self.later = 0

    def compose(self) -> ComposeResult:
        yield Transcript()

    async def on_mount(self) -> None:
        for theme in load_themes([own_folder()]).themes.values():
            self.register_theme(theme)
        await self.transcript.show(self.turns)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def views(self) -> list[MessageView]:
        return list(self.query(MessageView))

    def on_message_window_unseen(self, event: Transcript.Unseen) -> None:
        self.unseen, self.later = event.lines, event.messages


def turns(count: int) -> list[Turn]:
    return [Turn(Role.USER if i % 2 == 0 else Role.ASSISTANT, f"message {i}\n\nmore of it", 0.0) for i in range(count)]


def live() -> Turn:
    return Turn(Role.ASSISTANT, "", 0.0, live=True, status=Status.RUNNING)


def body(view: MessageView) -> list[str]:
    return [str(piece.content) for piece in view.query(Piece)]


async def settled(app: TranscriptApp, pilot: Pilot[None]) -> None:
    await pilot.pause(0.05)
    app.transcript.settle()
    await pilot.pause()


async def filled(app: TranscriptApp, pilot: Pilot[None]) -> None:
    """Lets the window be mounted whole."""
    for _ in range(200):
        if len(app.views) >= min(WINDOW, len(app.turns)):
            break
        await pilot.pause(0.02)
    await settled(app, pilot)
