"""Writing the shown chat to a file, off the UI thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..sessions.export import Form, file_name, form_of, text_of, write_export
from ..sessions.rows import MessageRow, Role, SessionInfo
from ..sessions.store import Store
from ..sessions.tree import Tree
from .chat import Chat, Turn


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


async def export_shown(chat: Chat, draft: str, wish: Wish) -> Path:
    """The same of a chat as it is on the screen, with what is typed, where the store does not take it."""
    info, messages = shown_rows(chat, draft)
    if draft and wish.form is not Form.JSON:  # JSON has a place for it
        ids = [row.id for row in messages]
        messages.append(_row(max(ids, default=0) + 1, info.leaf, Turn(Role.USER, draft, info.updated, sent=False)))
        info = replace(info, leaf=messages[-1].id)
    if not wish.whole:
        messages = Tree(messages).path(info.leaf)
    return await asyncio.to_thread(_write, info, messages, wish)


def shown_rows(chat: Chat, draft: str) -> tuple[SessionInfo, list[MessageRow]]:
    """A chat as it is on the screen, as the store would give it out; its messages have numbers of their own."""
    turns = sorted(chat.all_turns(), key=lambda turn: turn.created)
    ids: dict[int, int] = {id(turn): number for number, turn in enumerate(turns, 1)}
    rows = [_row(ids[id(turn)], ids.get(id(turn.above)), turn) for turn in turns]
    times = [turn.created for turn in turns] or [time.time()]
    model = next((turn.model for turn in reversed(turns) if turn.model), "")
    info = SessionInfo(
        id=chat.session or 0,
        title=chat.title,
        created=times[0],
        updated=times[-1],
        draft=draft,
        system=chat.system,
        model=model,
        leaf=ids.get(id(chat.end)),
        deleted_at=None,
        messages=len(rows),
        options=chat.options,
    )
    return info, rows


def _row(number: int, above: int | None, turn: Turn) -> MessageRow:
    return MessageRow(
        id=number,
        session_id=0,
        parent_id=above,
        role=turn.role,
        text=turn.text,
        thinking=turn.thinking,
        status=turn.status,
        note=turn.note,
        model=turn.model,
        params=None,
        stats=turn.stats.to_dict() if turn.stats is not None else None,
        owner_pid=None,
        created=turn.created,
        updated=turn.created,
        sent=turn.sent,
    )


def _export(store: Store, session: int, wish: Wish) -> Path:
    store.flush()  # what was sent is in the file, too
    info = store.session(session)
    return _write(info, store.messages(session) if wish.whole else store.branch(session), wish)


def _write(info: SessionInfo, messages: Sequence[MessageRow], wish: Wish) -> Path:
    target = Path(wish.path).expanduser() if wish.path else Path.cwd()
    if target.is_dir():
        target = target / file_name(info, wish.form.value)
    text = text_of(info, messages, wish.form, whole=wish.whole, thinking=wish.thinking)
    return write_export(text, target.absolute())
