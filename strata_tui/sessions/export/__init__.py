"""Chats as files: markdown, HTML or JSON; the shown branch or the whole tree."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from ...atomic import write_new
from ...errors import UserError
from ...regular import check_regular
from ...text import clean_line
from ..rows import MessageRow, SessionInfo
from ..store import Store


class Form(str, Enum):
    """What an export is written as; the value is the file's extension, too."""

    MARKDOWN = "md"
    HTML = "html"
    JSON = "json"


def export_text(store: Store, session: int, form: Form, *, whole: bool, thinking: bool = False) -> str:
    """A chat as text. `whole`: all branches. `thinking`: with it in markdown and HTML; JSON always has it.

    Raises UserError.
    """
    info = store.session(session)
    messages = store.messages(session) if whole else store.branch(session)
    return text_of(info, messages, form, whole=whole, thinking=thinking)


def text_of(
    info: SessionInfo, messages: Sequence[MessageRow], form: Form, *, whole: bool, thinking: bool = False
) -> str:
    """These messages of a chat, which need not be in a store; else like export_text."""
    match form:
        case Form.JSON:
            from .document import to_json

            return to_json(info, messages)
        case Form.HTML:
            from .webpage import to_html

            return to_html(info, messages, whole=whole, thinking=thinking)
        case Form.MARKDOWN:
            from .markdown import to_markdown

            return to_markdown(info, messages, whole=whole, thinking=thinking)


def form_of(path: str) -> Form | None:
    """The form that a file's name asks for."""
    extension = path.rpartition(".")[2].lower()
    return {"md": Form.MARKDOWN, "markdown": Form.MARKDOWN, "html": Form.HTML, "htm": Form.HTML, "json": Form.JSON}.get(
        extension
    )


def file_name(session: SessionInfo, extension: str) -> str:
    """A name for an export, from the chat's number and title: `chat-12-what-is-a-slot.md`."""
    slug = re.sub(r"\W+", "-", clean_line(session.title).lower()).strip("-_")[:40].strip("-_")
    return "-".join(filter(None, ("chat", str(session.id), slug))) + "." + extension


def write_export(text: str, path: Path) -> Path:
    """Writes an export, never over a file that exists (`-2` and so on is added); the path written.

    Raises UserError.
    """
    try:
        _check_target(path)
        return write_new(path, text)
    except OSError as error:
        raise UserError(f"The export cannot be written to {path}: {error.strerror}.") from error


def _check_target(path: Path) -> None:
    """Refuses what would get an ordinary file beside it: a device, a pipe, and names of the output in /dev."""
    instead = "name a file on a disk; strata-tui export -o - writes to the output"
    if os.path.realpath(path.parent) == "/dev":  # /dev/stdout may stand for an ordinary file
        raise UserError(f"The export cannot be written to {path}, for it is no place for files: {instead}.")
    with contextlib.suppress(FileNotFoundError):
        check_regular(path, f"The export cannot be written to {path}, for it", instead)
