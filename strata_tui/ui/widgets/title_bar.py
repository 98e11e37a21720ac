"""The first line: the app, the chat's title, and what model is loaded."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from ...engine.events import ModelInfo


class TitleBar(Horizontal):
    """Title on the left, cut where it does not fit; model, quantization and context on the right."""

    def compose(self) -> ComposeResult:
        yield Static(Content.styled(" strata ", "bold $primary"), id="app-name")
        yield Static(id="chat-title")
        yield Static(id="model-name")

    def show_title(self, title: str) -> None:
        """Shows the chat's title."""
        self.query_one("#chat-title", Static).update(Content(title))

    def show_model(self, model: ModelInfo | None, waiting: str) -> None:
        """Shows the loaded model, or `waiting` while there is none."""
        self.query_one("#model-name", Static).update(Content(model_text(model) if model else waiting))


def model_text(model: ModelInfo) -> str:
    """Name, quantization and context length: `qwen3-30b-a3b Q4_K_M  16k ctx`."""
    context = f"{model.context // 1024}k" if model.context >= 1024 else str(model.context)
    return f"{model.name} {model.quantization}  {context} ctx"
