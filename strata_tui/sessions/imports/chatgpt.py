"""ChatGPT's data export: `conversations.json`, a list of trees of messages.

Kept are what the person and the assistant said, with names in place of pictures and files. Messages between
the assistant and its tools are left out; what it wrote into a canvas is kept. Thoughts become thinking.
A system message that is not hidden becomes the chat's system prompt, if it is the first.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..portable import PortableChat, PortableMessage
from ..rows import Role
from ..titles import title_from
from .nodes import Node, build, key_of, list_of, mapping_of, seconds_of, text_of

_CITATION = re.compile("\ue200[^\ue201]*\ue201")  # marks that only ChatGPT's own page can resolve
_CANVAS = "canmore.create_textdoc"


def is_conversation(value: object) -> bool:
    """Whether this is one conversation of an export."""
    return isinstance(value, dict) and isinstance(value.get("mapping"), dict)


def chat_of(conversation: Mapping[str, Any], left_out: Counter[str]) -> PortableChat:
    """One conversation. What is left out is counted in `left_out`, by kind."""
    created = seconds_of(conversation.get("create_time"))
    reader = _Reader(created or 0.0, left_out)
    nodes = [reader.node(key, mapping_of(node)) for key, node in conversation["mapping"].items()]
    messages, leaf = build(nodes, text_of(conversation.get("current_node")))
    times = [m.created for m in messages]
    created = created or min(times, default=0.0)
    return PortableChat(
        title=title_from(text_of(conversation.get("title")) or next((m.text for m in messages), "")),
        created=created,
        updated=max([seconds_of(conversation.get("update_time")) or created, *times]),
        messages=messages,
        leaf=leaf,
        system=reader.system,
        model=next((m.model for m in reversed(messages) if m.model), ""),
    )


class _Reader:
    """Reads one conversation's nodes."""

    def __init__(self, created: float, left_out: Counter[str]) -> None:
        self._created = created
        self._left_out = left_out
        self.system = ""

    def node(self, key: str, node: Mapping[str, Any]) -> Node:
        parent = key_of(node.get("parent"))
        message = mapping_of(node.get("message"))
        created = seconds_of(message.get("create_time"))
        role = text_of(mapping_of(message.get("author")).get("role"))
        content = mapping_of(message.get("content"))
        kind = text_of(content.get("content_type"))
        text = thinking = ""
        if message:
            if kind == "thoughts":
                thinking = _thoughts(content)
            elif kind != "reasoning_recap":
                text = self._kept(role, kind, message, content)
        if not text:
            return Node(key, parent, None, thinking, created)
        found = PortableMessage(
            parent=None,
            role=Role(role),
            text=text,
            created=created or self._created,
            updated=seconds_of(message.get("update_time")) or created or self._created,
            model=text_of(mapping_of(message.get("metadata")).get("model_slug")) if role == "assistant" else "",
        )
        return Node(key, parent, found, created=created)

    def _kept(self, role: str, kind: str, message: Mapping[str, Any], content: Mapping[str, Any]) -> str:
        """The text of a message that is kept, else nothing."""
        recipient = text_of(message.get("recipient")) or "all"
        if role == "assistant" and recipient == _CANVAS:
            return _canvas(content)
        if role == "tool" or (role == "assistant" and recipient != "all"):
            self._left_out["tool message"] += 1
            return ""
        metadata = mapping_of(message.get("metadata"))
        hidden = metadata.get("is_visually_hidden_from_conversation") or kind.endswith("_editable_context")
        if role not in ("user", "assistant", "system") or (hidden and role != "system"):
            self._left_out["hidden message"] += 1
            return ""
        text = self._text(kind, content, metadata)
        if role == "system":
            if text and not hidden and not self.system:
                self.system = text
            elif text:
                self._left_out["system message"] += 1
            return ""
        return text

    def _text(self, kind: str, content: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
        pieces = []
        if kind == "code":
            language = text_of(content.get("language"))
            pieces.append(_fenced(text_of(content.get("text")), "" if language == "unknown" else language))
        for part in list_of(content.get("parts")):
            if isinstance(part, str):
                pieces.append(_CITATION.sub("", part))
            else:
                pieces.append(self._other_part(mapping_of(part)))
        if not pieces:
            pieces.append(text_of(content.get("text")) or text_of(content.get("result")))
        for attachment in list_of(metadata.get("attachments")):
            name = text_of(mapping_of(attachment).get("name"))
            if name:
                self._left_out["picture or file"] += 1
                pieces.append(f"[file: {name}]")
        return "\n\n".join(piece.strip("\n") for piece in pieces if piece.strip())

    def _other_part(self, part: Mapping[str, Any]) -> str:
        text = text_of(part.get("text"))
        if text:  # a transcript of what was spoken
            return text
        kind = text_of(part.get("content_type"))
        if not kind:
            return ""
        self._left_out["picture or file"] += 1
        return "[image]" if kind.startswith("image") else f"[{kind.removesuffix('_asset_pointer')}]"


def _thoughts(content: Mapping[str, Any]) -> str:
    found = []
    for thought in map(mapping_of, list_of(content.get("thoughts"))):
        pieces = [text_of(thought.get(name)).strip() for name in ("summary", "content")]
        found.append("\n".join(filter(None, pieces)))
    return "\n\n".join(filter(None, found))


def _canvas(content: Mapping[str, Any]) -> str:
    raw = "".join(part for part in list_of(content.get("parts")) if isinstance(part, str)) or text_of(
        content.get("text")
    )
    try:
        document = mapping_of(json.loads(raw))
    except ValueError:
        return raw
    body, name, kind = (text_of(document.get(key)) for key in ("content", "name", "type"))
    text = _fenced(body, kind.removeprefix("code/")) if kind.startswith("code/") else body
    return f"**{name}**\n\n{text}" if name and text else text


def _fenced(code: str, language: str) -> str:
    if not code:
        return ""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", code)), 3)
    return f"{fence}{language}\n{code}\n{fence}"
