"""Writing the shown chat to a file, off the UI thread."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from ..sessions.export import Form, export_text, file_name, form_of, write_export
from ..sessions.store import Store


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be written, and where: a file, a folder, or nothing for the current folder."""

    form: Form = Form.MARKDOWN
    whole: bool = False
    path: str = ""
    thinking: bool = False


def parse_wish(argument: str) -> Wish:
    """`md|html|json [tree|branch] [PATH]`, each of which may be left out. JSON is whole unless asked otherwise."""
    form: Form | None = None
    whole: bool | None = None
    rest = argument.strip()
    while rest:
        word, _, after = rest.partition(" ")
        if form is None and word in {f.value for f in Form}:
            form = Form(word)
        elif whole is None and word in ("tree", "branch"):
            whole = word == "tree"
        else:
            break
        rest = after.lstrip()
    form = form or form_of(rest) or Form.MARKDOWN
    return Wish(form, form is Form.JSON if whole is None else whole, rest)


async def export_chat(store: Store, session: int, wish: Wish) -> Path:
    """Writes the chat and returns the path written. Raises UserError. An existing file is never written over."""
    return await asyncio.to_thread(_export, store, session, wish)


def _export(store: Store, session: int, wish: Wish) -> Path:
    store.flush()  # what was sent is in the file, too
    target = Path(wish.path).expanduser() if wish.path else Path.cwd()
    if target.is_dir():
        target = target / file_name(store.session(session), wish.form.value)
    text = export_text(store, session, wish.form, whole=wish.whole, thinking=wish.thinking)
    return write_export(text, target.absolute())
