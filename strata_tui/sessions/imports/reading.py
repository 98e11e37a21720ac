"""Which program a file comes from, and the chats in it. The contents decide, never the name."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...regular import check_regular
from ..portable import PortableChat
from . import chatgpt, llama_ui, own

LARGEST = 2 << 30  # bytes of one JSON file; what it takes in memory is some times that

_KNOWN = (
    "it is none of ChatGPT's conversations.json (or the zip around it), an export of llama.cpp's web interface "
    "(json, jsonl or zip), or a chat exported by strata-tui as JSON"
)


@dataclass(slots=True)
class Import:
    """What one file holds."""

    path: Path
    programs: list[str] = field(default_factory=list)  # where the chats come from, each once
    chats: list[PortableChat] = field(default_factory=list)  # with a message or a draft each
    left_out: Counter[str] = field(default_factory=Counter)  # by kind, in the singular

    def add(self, program: str, chat: PortableChat) -> None:
        """Takes a chat; one that is empty is counted only."""
        if program not in self.programs:
            self.programs.append(program)
        if chat.messages or chat.draft:
            self.chats.append(chat)
        else:
            self.left_out["empty chat"] += 1


def read_file(path: Path) -> Import:
    """All chats of a file. Raises UserError: nothing of a file that cannot be read whole is taken."""
    found = Import(path)
    try:
        check_regular(path, str(path), "name an export on a disk")
        with path.open("rb") as file:
            start = file.read(4)
        if start[:2] == b"PK":
            _read_zip(path, found)
        else:
            if path.stat().st_size > LARGEST:
                raise UserError(f"{path} is larger than {LARGEST >> 30} GiB: no program's export is.")
            _read_text(path.read_bytes(), str(path), found)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not found.programs:
        raise UserError(f"{path} holds no chats that can be read: {_KNOWN}.")
    return found


def _read_zip(path: Path, found: Import) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if not member.filename.lower().endswith((".json", ".jsonl")):
                    continue
                where = f"{path}: {member.filename}"
                if member.file_size > LARGEST:
                    raise UserError(f"{where} is larger than {LARGEST >> 30} GiB: no program's export is.")
                _read_text(archive.read(member), where, found)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UserError(f"{path} is a damaged zip file, or one with a password ({error}).") from error


def _read_text(data: bytes, where: str, found: Import) -> None:
    """Reads one JSON or JSONL file; one of another program that is no export is passed over."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{where} is no JSON: it is not UTF-8 text (byte {error.start}).") from error
    first = text.lstrip().partition("\n")[0]
    if llama_ui.is_session(_parsed_or_none(first)):
        records = [
            _parsed(line, f"{where}, line {number}") for number, line in enumerate(text.split("\n"), 1) if line.strip()
        ]
        for conversation, messages in llama_ui.pairs_of_records(records):
            _add_llama(conversation, messages, found)
        return
    document = _parsed(text, where)
    for value in document if isinstance(document, list) else [document]:
        _add(value, where, found)


def _add(value: object, where: str, found: Import) -> None:
    if isinstance(value, dict) and own.is_document(value):
        found.add("strata-tui", own.chat_of(value, where))
    elif isinstance(value, dict) and chatgpt.is_conversation(value):
        found.add("ChatGPT", chatgpt.chat_of(value, found.left_out))
    elif isinstance(value, dict) and llama_ui.is_conversation(value):
        _add_llama(value["conv"], value["messages"], found)
    elif isinstance(value, dict) and llama_ui.is_database(value):
        for conversation, messages in llama_ui.pairs_of_database(value):
            _add_llama(conversation, messages, found)


def _add_llama(conversation: Any, messages: list[Any], found: Import) -> None:
    found.add("llama.cpp", llama_ui.chat_of(conversation, messages, found.left_out))


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{where} is no JSON: {error.msg} in line {error.lineno}, column {error.colno}.") from error
    except RecursionError as error:
        raise UserError(f"{where} is no JSON that can be read: it nests too deeply.") from error


def _parsed_or_none(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
