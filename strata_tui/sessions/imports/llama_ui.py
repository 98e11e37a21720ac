"""llama.cpp's web interface: JSONL (and zip files of it), the JSON before that, and the first one's whole database.

Every form has conversations (`id`, `name`, `lastModified` in milliseconds, `currNode`) and messages (`id`,
`parent`, `role`, `type`, `content`, `timestamp` in milliseconds). A message of type `root` is empty and above all
others. Texts that were attached are part of what the model read, and are kept in the message.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...engine.counters import ReplyStats
from ..portable import PortableChat, PortableMessage
from ..rows import Role
from ..titles import title_from
from .nodes import Node, build, key_of, list_of, mapping_of, seconds_of, text_of

_THINKING = re.compile(
    r"\s*(?:<<<reasoning_content_start>>>(.*?)<<<reasoning_content_end>>>|<think>(.*?)</think>)\s*", re.S
)
_TOOL_CALL = re.compile(r"\n*<<<AGENTIC_TOOL_CALL_START>>>.*?(?:<<<AGENTIC_TOOL_CALL_END>>>|\Z)", re.S)

Pair = tuple[Mapping[str, Any], list[Any]]  # a conversation and its messages


def is_conversation(value: object) -> bool:
    """Whether this is one conversation with its messages, as the JSON form has it."""
    return isinstance(value, dict) and isinstance(value.get("conv"), dict) and isinstance(value.get("messages"), list)


def is_session(value: object) -> bool:
    """Whether this is the record that begins a conversation in the JSONL form."""
    return isinstance(value, dict) and value.get("type") == "session" and "id" in value


def is_database(value: object) -> bool:
    """Whether this is the whole database, as the first web interface wrote it."""
    return isinstance(value, dict) and value.get("formatName") == "dexie" and isinstance(value.get("data"), dict)


def pairs_of_records(records: Iterable[object]) -> Iterator[Pair]:
    """Conversations of the JSONL form. Records of other kinds are passed over, as that program does."""
    pair: Pair | None = None
    for record in map(mapping_of, records):
        if is_session(record):
            if pair is not None:
                yield pair
            pair = (record, [])
        elif record.get("type") == "message" and pair is not None:
            pair[1].append(record.get("message"))
    if pair is not None:
        yield pair


def pairs_of_database(document: Mapping[str, Any]) -> Iterator[Pair]:
    """Conversations of the first web interface's database."""
    tables: dict[str, list[Any]] = {}
    for table in map(mapping_of, list_of(mapping_of(document.get("data")).get("data"))):
        tables[text_of(table.get("tableName"))] = list_of(table.get("rows"))
    messages: dict[object, list[Any]] = {}
    for message in map(mapping_of, tables.get("messages", ())):
        messages.setdefault(key_of(message.get("convId")), []).append(message)
    for conversation in map(mapping_of, tables.get("conversations", ())):
        yield conversation, messages.get(key_of(conversation.get("id")), [])


def chat_of(conversation: Mapping[str, Any], records: Iterable[object], left_out: Counter[str]) -> PortableChat:
    """One conversation. What is left out is counted in `left_out`, by kind."""
    updated = seconds_of(conversation.get("lastModified")) or 0.0
    reader = _Reader(updated, left_out)
    nodes = [reader.node(mapping_of(record)) for record in records]
    messages, leaf = build(nodes, key_of(conversation.get("currNode")))
    times = [m.created for m in messages]
    return PortableChat(
        title=title_from(text_of(conversation.get("name")) or next((m.text for m in messages), "")),
        created=min(times, default=updated),
        updated=max([updated, *times]),
        messages=messages,
        leaf=leaf,
        system=reader.system,
        model=next((m.model for m in reversed(messages) if m.model), ""),
        pinned=conversation.get("pinned") is True,
    )


class _Reader:
    """Reads one conversation's messages."""

    def __init__(self, updated: float, left_out: Counter[str]) -> None:
        self._updated = updated
        self._left_out = left_out
        self.system = ""

    def node(self, record: Mapping[str, Any]) -> Node:
        key, parent = key_of(record.get("id")), key_of(record.get("parent"))
        created = seconds_of(record.get("timestamp"))
        role = text_of(record.get("role"))
        text = text_of(record.get("content"))
        thinking = text_of(record.get("reasoningContent")) or text_of(record.get("thinking"))
        if role == "assistant":
            if found := _THINKING.match(text):
                thinking, text = thinking or (found[1] or found[2]).strip(), text[found.end() :]
            text = _TOOL_CALL.sub("", text)
        text = "\n\n".join(filter(None, [text, *self._attached(record)]))
        if role not in ("user", "assistant") or record.get("type") == "root" or not (text or thinking):
            self._leave_out(record, role, text)
            return Node(key, parent, None, created=created)
        if role == "assistant" and not text and record.get("toolCalls"):
            self._left_out["tool message"] += 1
            return Node(key, parent, None, thinking, created)
        message = PortableMessage(
            parent=None,
            role=Role(role),
            text=text,
            thinking=thinking if role == "assistant" else "",
            created=created or self._updated,
            updated=created or self._updated,
            model=text_of(record.get("model")) if role == "assistant" else "",
            stats=_stats(mapping_of(record.get("timings")), text_of(record.get("model"))),
        )
        return Node(key, parent, message, created=created)

    def _leave_out(self, record: Mapping[str, Any], role: str, text: str) -> None:
        if role == "tool" or record.get("toolCalls"):
            self._left_out["tool message"] += 1
        elif role == "system" and text.strip() and not self.system:
            self.system = text.strip()
        elif role == "system" and text.strip():
            self._left_out["system message"] += 1

    def _attached(self, record: Mapping[str, Any]) -> Iterator[str]:
        for extra in map(mapping_of, list_of(record.get("extra"))):
            name, content = text_of(extra.get("name")), text_of(extra.get("content"))
            if content:
                yield f"--- {name or 'attached text'} ---\n{content}"
            else:
                self._left_out["picture or file"] += 1
                yield f"[file: {name}]" if name else "[file]"


def _stats(timings: Mapping[str, Any], model: str) -> Mapping[str, object] | None:
    """The numbers that program keeps with a reply; what it does not know stays unknown."""

    def number(name: str) -> float:
        value = timings.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else 0.0

    if not number("predicted_n"):
        return None
    reused = int(number("cache_n"))
    stats = ReplyStats(
        prompt_tokens=int(number("prompt_n")) + reused,
        reused_tokens=reused,
        reply_tokens=int(number("predicted_n")),
        prompt_seconds=number("prompt_ms") / 1000 or None,
        decode_seconds=number("predicted_ms") / 1000 or None,
        model=model,
    )
    return stats.to_dict()
