"""Our own JSON, of every version: see strata_tui.sessions.export.document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ...engine.counters import ReplyStats
from ...errors import UserError
from ..export.document import SCHEMA, SCHEMA_VERSION
from ..portable import PortableChat, PortableMessage
from ..rows import Role, Status
from .nodes import list_of, mapping_of, text_of


def is_document(value: object) -> bool:
    """Whether this is a chat that strata-tui has exported."""
    return isinstance(value, dict) and value.get("schema") == SCHEMA


def chat_of(document: Mapping[str, Any], where: str) -> PortableChat:
    """The chat of a document, unchanged. Raises UserError that names `where`."""
    version = document.get("schema_version")
    if not isinstance(version, int) or version < 1:
        raise UserError(f"{where} has no schema_version.")
    if version > SCHEMA_VERSION:
        raise UserError(
            f"{where} was written by a newer strata-tui (schema version {version}, this program knows "
            f"{SCHEMA_VERSION}); update strata-tui."
        )
    session = mapping_of(document.get("session"))
    places: dict[object, int] = {}
    messages = []
    for number, record in enumerate(map(mapping_of, list_of(document.get("messages"))), 1):
        messages.append(_message(record, places, f"{where}: message {number}"))
        places[record["id"]] = number - 1
    leaf = session.get("leaf")
    if leaf is not None and not (isinstance(leaf, int) and leaf in places):
        raise UserError(f"{where}: the shown branch ends at message {leaf}, which is not there.")
    created = _time(session, "created", where)
    return PortableChat(
        title=text_of(session.get("title")),
        created=created,
        updated=_time(session, "updated", where),
        messages=tuple(messages),
        leaf=None if leaf is None else places[leaf],
        system=text_of(session.get("system")),
        model=text_of(session.get("model")),
        draft=text_of(session.get("draft")),
        pinned=session.get("pinned") is True,
        options=mapping_of(session.get("options")),
    )


def _message(record: Mapping[str, Any], places: Mapping[object, int], where: str) -> PortableMessage:
    key, parent = record.get("id"), record.get("parent_id")
    if not isinstance(key, int) or key in places:
        raise UserError(f"{where} has no id of its own.")
    if parent is not None and not (isinstance(parent, int) and parent in places):
        raise UserError(f"{where} follows message {parent}, which does not come before it.")
    try:
        role, status = Role(record.get("role")), Status(record.get("status"))
    except ValueError as error:
        raise UserError(f"{where}: {error}.") from None
    if not isinstance(record.get("text"), str):
        raise UserError(f"{where} has no text.")
    return PortableMessage(
        parent=None if parent is None else places[parent],
        role=role,
        text=record["text"],
        created=_time(record, "created", where),
        updated=_time(record, "updated", where),
        thinking=text_of(record.get("thinking")),
        status=Status.INTERRUPTED if status is Status.RUNNING else status,
        note=text_of(record.get("note")),
        model=text_of(record.get("model")),
        params=record["params"] if isinstance(record.get("params"), dict) else None,
        stats=_stats(record.get("stats"), where),
        sent=record.get("sent") is not False,
    )


def _stats(value: object, where: str) -> Mapping[str, object] | None:
    """A reply's numbers as they were stored, of which every one that the screen adds up is a number."""
    if not isinstance(value, dict):
        return None
    counters = mapping_of(value.get("counters"))
    whole = [value.get(f.name, 0) for f in fields(ReplyStats) if f.type == "int"]
    whole += [n for name in ("prompt", "decode") for n in mapping_of(counters.get(name)).values()]
    parts = [value.get(f.name) for f in fields(ReplyStats) if f.type == "float | None"]
    if not all(type(n) is int for n in whole) or not all(n is None or type(n) in (int, float) for n in parts):
        raise UserError(f"{where}: its stats are no numbers.")
    layers = value.get("layers", [])
    if not isinstance(layers, list) or not all(_is_pair(pair) for pair in layers):
        raise UserError(f"{where}: its stats' layers are no pairs of numbers.")
    return value


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(n) is int for n in value)


def _time(record: Mapping[str, Any], name: str, where: str) -> float:
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
        raise UserError(f"{where}: {name} is no time in Unix seconds.")
    return float(value)
