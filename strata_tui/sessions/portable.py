"""A chat outside a store: what is imported, exported as JSON, or copied by a fork. Times are Unix seconds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from .rows import MessageRow, Role, SessionInfo, Status


@dataclass(frozen=True, slots=True)
class PortableMessage:
    """A message whose `parent` is the place of the message before it in its chat's list; None for a first one."""

    parent: int | None
    role: Role
    text: str
    created: float
    updated: float
    thinking: str = ""
    status: Status = Status.DONE  # never RUNNING: nobody writes it any more
    note: str = ""
    model: str = ""
    params: Mapping[str, object] | None = None
    stats: Mapping[str, object] | None = None
    sent: bool = True


@dataclass(frozen=True, slots=True)
class PortableChat:
    """`messages`: each after its parent. `leaf`: the place of the shown branch's last message."""

    title: str
    created: float
    updated: float
    messages: tuple[PortableMessage, ...]
    leaf: int | None
    system: str = ""
    model: str = ""
    draft: str = ""
    pinned: bool = False
    options: Mapping[str, object] = field(default_factory=dict)

    def digest(self) -> str:
        """The same for the same chat, wherever it is imported."""
        values = asdict(self)
        for message in values["messages"]:
            if message["sent"]:
                del message["sent"]  # as before there was such a mark
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode("utf-8", "replace")).hexdigest()


def portable(info: SessionInfo, messages: Iterable[MessageRow]) -> PortableChat:
    """A stored chat with these messages, which hold the parents of each of them. A running one is interrupted."""
    rows = sorted(messages, key=lambda m: m.id)
    places = {row.id: place for place, row in enumerate(rows)}
    return PortableChat(
        title=info.title,
        created=info.created,
        updated=info.updated,
        messages=tuple(
            PortableMessage(
                parent=None if row.parent_id is None else places[row.parent_id],
                role=row.role,
                text=row.text,
                created=row.created,
                updated=row.updated,
                thinking=row.thinking,
                status=Status.INTERRUPTED if row.status is Status.RUNNING else row.status,
                note=row.note,
                model=row.model,
                params=row.params,
                stats=row.stats,
                sent=row.sent,
            )
            for row in rows
        ),
        leaf=None if info.leaf is None else places.get(info.leaf),
        system=info.system,
        model=info.model,
        draft=info.draft,
        pinned=info.pinned,
        options=info.options,
    )
