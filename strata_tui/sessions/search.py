"""Full-text search: what is asked, the index of SQLite's FTS5, and what was found.

The index has one row for each message that is not being written: its visible text, cleaned (thinking is
not searched). Scripts without spaces between words get one between characters, because the tokenizer would
take a whole sentence for one word; a query is treated alike, so that 日本 is found in 日本語.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import UserError
from ..text import clean, clean_line
from .rows import Role

MOST_WORDS = 32
_SNIPPET_WORDS = 40  # SQLite allows 64
_BATCH = 500  # messages indexed in one transaction

# Thai to Lao, Tibetan, Myanmar, Khmer, kana, CJK ideographs, Hangul, halfwidth kana
_UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_GAP = "\u200b"  # zero width space: no part of a word for the tokenizer, and nothing on screen
_BORDER = re.compile(rf"(?<=[{_UNSPACED}])(?=\w)|(?<=\w)(?=[{_UNSPACED}])")
_OPEN, _CLOSE = "\x02", "\x03"  # around what matched; cleaned text has neither
_MARKED = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}")
_TERM = re.compile(r'"([^"]+)"|(\S+)')

_FIND = f"""SELECT m.id, m.session_id, s.title, m.role, m.created,
    snippet(search, 0, '{_OPEN}', '{_CLOSE}', '…', {_SNIPPET_WORDS}) AS snippet
    FROM search JOIN messages m ON m.id = search.rowid JOIN sessions s ON s.id = m.session_id
    WHERE search MATCH ? AND s.deleted_at IS NULL ORDER BY rank, m.id DESC LIMIT ?"""
_TITLES = "SELECT id, title, updated FROM sessions WHERE deleted_at IS NULL ORDER BY updated DESC, id DESC"


@dataclass(frozen=True, slots=True)
class Term:
    """A word, or the words between two quotes, that must be found. `whole`: not as the start of a longer word."""

    text: str
    whole: bool


@dataclass(frozen=True, slots=True)
class Hit:
    """A message, or a chat by its title (then `message` and `role` are None).

    `snippet`: one line around what matched, in pieces, each with whether it matched; for a title, the title.
    """

    session: int
    title: str
    message: int | None
    role: Role | None
    created: float  # Unix seconds; of a chat, when it was last written to
    snippet: tuple[tuple[str, bool], ...]


def terms_of(query: str) -> list[Term]:
    """What a person asks for. Signs alone are nothing to search for. Raises UserError for more than 32 words."""
    found = []
    for match in _TERM.finditer(clean_line(query)):
        text = (match[1] or match[2]).replace('"', " ").strip()
        if any(c.isalnum() for c in text):
            found.append(Term(text, whole=match[1] is not None or not text[-1].isalnum()))
    if len(found) > MOST_WORDS:
        raise UserError(f"A search can have {MOST_WORDS} words at most; this one has {len(found)}.")
    return found


def find(read: Callable[..., Sequence[sqlite3.Row]], terms: Sequence[Term], limit: int) -> list[Hit]:
    """Chats by title, the last used first, then messages, the best first. All terms must be in one of them."""
    if not terms:
        return []
    titles = [
        Hit(row["id"], row["title"], None, None, row["updated"], marked)
        for row in read(_TITLES)
        if (marked := match_title(row["title"], terms))
    ]
    rows = read(_FIND, " AND ".join(map(_expression, terms)), limit)
    messages = [
        Hit(r["session_id"], r["title"], r["id"], Role(r["role"]), r["created"], _pieces(r["snippet"])) for r in rows
    ]
    return [*titles, *messages][:limit]


def index(connection: sqlite3.Connection) -> int:
    """Brings some of what the index lacks into it; how many messages it lacks still."""
    keys = [k for (k,) in connection.execute("SELECT message_id FROM unindexed LIMIT ?", (_BATCH,))]
    for key in keys:
        connection.execute("DELETE FROM search WHERE rowid = ?", (key,))
        row = connection.execute("SELECT text FROM messages WHERE id = ? AND status <> 'running'", (key,)).fetchone()
        if row is not None and row[0]:
            connection.execute("INSERT INTO search (rowid, text) VALUES (?, ?)", (key, spaced(row[0])))
        connection.execute("DELETE FROM unindexed WHERE message_id = ?", (key,))
    left: int = connection.execute("SELECT count(*) FROM unindexed").fetchone()[0]
    return left


def tidy(connection: sqlite3.Connection) -> None:
    """Merges the index, so that nothing of removed messages is left in it."""
    connection.execute("INSERT INTO search (search) VALUES ('optimize')")


def spaced(text: str) -> str:
    """Cleaned text as the index has it."""
    return _BORDER.sub(_GAP, clean(text))


def folded(text: str) -> str:
    """Text for comparing without regard to case and accents."""
    if text.isascii():
        return text.lower()
    return "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))


def match_title(title: str, terms: Sequence[Term]) -> tuple[tuple[str, bool], ...]:
    """The title in pieces, where it has all terms; else nothing."""
    title = clean_line(title)
    plain = folded(title)
    if not all(folded(term.text) in plain for term in terms):
        return ()
    if len(plain) != len(title):  # positions differ: an accent or a ligature came apart
        return ((title, False),)
    hits = [False] * len(title)
    for term in terms:
        word = folded(term.text)
        at = plain.find(word)
        while at >= 0:
            hits[at : at + len(word)] = [True] * len(word)
            at = plain.find(word, at + 1)
    pieces: list[tuple[str, bool]] = []
    for character, hit in zip(title, hits, strict=True):
        if pieces and pieces[-1][1] == hit:
            pieces[-1] = (pieces[-1][0] + character, hit)
        else:
            pieces.append((character, hit))
    return tuple(pieces)


def _expression(term: Term) -> str:
    """FTS5's own language. A word counts more when it is found whole, which the second part is for."""
    words = f'"{spaced(term.text)}"'
    return words if term.whole else f"({words} OR {words}*)"


def _pieces(snippet: str) -> tuple[tuple[str, bool], ...]:
    line = " ".join(snippet.replace(_GAP, "").split())
    parts = _MARKED.split(line)
    return tuple((part, number % 2 == 1) for number, part in enumerate(parts) if part)
