"""The first line: the app, the chat's title, and what model is loaded."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from ...engine.events import ModelInfo

_NAME = "strata"
_LEAST_TITLE = 16  # cells that the title keeps before the model's name is cut


class TitleBar(Static):
    """Title on the left; model, quantization and context on the right. The names are cut where they do not fit."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._title = ""
        self._model = ("", "")

    def show_title(self, title: str) -> None:
        """Shows the chat's title."""
        self._title = title
        self._draw()

    def show_model(self, model: ModelInfo | None, waiting: str) -> None:
        """Shows the loaded model, or `waiting` while there is none."""
        self._model = model_texts(model) if model else (waiting, "")
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self.update(title_text(self._title, *self._model, self.size.width), layout=False)


def title_text(title: str, model: str, facts: str, width: int) -> Content:
    """One line of `width` cells. What the model is keeps its place; its name and the title share what is left."""
    shown, name = Content(title), Content(model)
    tail = f"  {facts} " if facts else " "
    room = width - len(_NAME) - 5 - len(tail)
    share = max(_LEAST_TITLE, room - name.cell_length)
    shown = shown.truncate(max(1, min(share, room - 1)), ellipsis=True)
    name = name.truncate(max(1, room - shown.cell_length), ellipsis=True)
    gap = max(1, room - shown.cell_length - name.cell_length + 2)
    return Content.assemble(
        " ", (_NAME, "bold $primary"), "  ", shown, " " * gap, name.stylize("$secondary"), (tail, "$secondary")
    )


def model_texts(model: ModelInfo) -> tuple[str, str]:
    """The name, and quantization with context length: `Q4_K_M  16k ctx`."""
    context = f"{model.context // 1024}k" if model.context >= 1024 else str(model.context)
    return model.name, f"{model.quantization}  {context} ctx"
