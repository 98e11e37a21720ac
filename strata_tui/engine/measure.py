"""How many tokens a conversation takes: as its prompt is rendered, with all markup. Runs on the worker thread."""

from __future__ import annotations

from logging import Logger
from typing import TYPE_CHECKING

from ..errors import UserError
from .events import Measured
from .job import Measure
from .llama_log import cause

if TYPE_CHECKING:
    from .opening import OpenModel


def measured(opened: OpenModel | None, question: Measure, log: Logger) -> Measured:
    """Always answers; what stands in the way becomes the answer's problem."""
    if opened is None:
        return Measured(question.id, 0, problem="No model is open: open one first.")
    try:
        opened.format.think(question.thinking)
        tokens = len(opened.format.prompt(question.messages).tokens) if question.messages else 0
        return Measured(question.id, tokens, tuple(len(opened.model.tokenize(text)) for text in question.texts))
    except UserError as error:
        return Measured(question.id, 0, problem=str(error))
    except Exception as error:  # the worker must live on, and whoever asked waits for an answer
        log.exception("measure %d failed", question.id)
        return Measured(question.id, 0, problem=f"The conversation cannot be measured: {cause(error)}.")
