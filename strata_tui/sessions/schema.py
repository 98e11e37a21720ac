"""The database file: its tables, opening it, and bringing an older one up to date."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import UserError

BUSY_SECONDS = 5.0

# One entry a version: user_version n has the first n applied. Never change an entry; add one.
MIGRATIONS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE sessions (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            title TEXT NOT NULL,
            created REAL NOT NULL,
            updated REAL NOT NULL,
            draft TEXT NOT NULL DEFAULT '',
            system TEXT NOT NULL DEFAULT '',
            model TEXT NOT NULL DEFAULT '',
            leaf INTEGER,
            deleted_at REAL,
            FOREIGN KEY (id, leaf) REFERENCES messages (session_id, id)
        )""",
        # the composite keys keep parents and leaves inside their own chat
        """CREATE TABLE messages (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            session_id INTEGER NOT NULL REFERENCES sessions (id),
            parent_id INTEGER,
            role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
            text TEXT NOT NULL,
            thinking TEXT NOT NULL DEFAULT '',
            status TEXT NOT NULL CHECK (status IN ('running', 'done', 'stopped', 'error', 'interrupted')),
            note TEXT NOT NULL DEFAULT '',
            model TEXT NOT NULL DEFAULT '',
            params_json TEXT,
            stats_json TEXT,
            owner TEXT,
            owner_pid INTEGER,
            created REAL NOT NULL,
            updated REAL NOT NULL,
            UNIQUE (session_id, id),
            FOREIGN KEY (session_id, parent_id) REFERENCES messages (session_id, id),
            CHECK (status <> 'running' OR owner IS NOT NULL)
        )""",
        "CREATE INDEX messages_parent ON messages (session_id, parent_id)",
        "CREATE INDEX messages_running ON messages (owner) WHERE status = 'running'",
        "CREATE INDEX sessions_updated ON sessions (updated)",
    ),
    (
        "ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1))",
        "ALTER TABLE sessions ADD COLUMN options_json TEXT",  # what a chat has of its own, beside its system prompt
        "ALTER TABLE sessions ADD COLUMN source TEXT",  # digest of what an imported chat was made from
        "ALTER TABLE sessions ADD COLUMN owner TEXT",  # the program that has the chat open, see claims.py
        "ALTER TABLE sessions ADD COLUMN owner_pid INTEGER",
        "CREATE INDEX sessions_source ON sessions (source) WHERE source IS NOT NULL",
        "CREATE INDEX sessions_owner ON sessions (owner) WHERE owner IS NOT NULL",
        # The index holds cleaned copies of the texts, see search.py. Triggers only note what it lacks: an older
        # program that is still running, or a broken index, must never keep a chat from being stored.
        """CREATE VIRTUAL TABLE search USING fts5
            (text, tokenize = "unicode61 remove_diacritics 2", prefix = '1 2')""",
        "CREATE TABLE unindexed (message_id INTEGER PRIMARY KEY)",
        "INSERT INTO unindexed SELECT id FROM messages WHERE status <> 'running'",
        """CREATE TRIGGER messages_added AFTER INSERT ON messages WHEN new.status <> 'running' BEGIN
            INSERT OR IGNORE INTO unindexed VALUES (new.id);
        END""",
        """CREATE TRIGGER messages_changed AFTER UPDATE OF text, status ON messages WHEN new.status <> 'running' BEGIN
            INSERT OR IGNORE INTO unindexed VALUES (new.id);
        END""",
        """CREATE TRIGGER messages_removed AFTER DELETE ON messages BEGIN
            INSERT OR IGNORE INTO unindexed VALUES (old.id);
        END""",
    ),
    (
        # 0: the message is left out of what the model gets, see conversation.py
        "ALTER TABLE messages ADD COLUMN sent INTEGER NOT NULL DEFAULT 1 CHECK (sent IN (0, 1))",
    ),
)


@contextlib.contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Turns what SQLite and the file system say about `path` into a UserError."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise UserError(_sentence(path, error)) from error
    except OSError as error:
        folder = path.parent
        nearest = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
        if not nearest.is_dir():
            raise UserError(
                f"Chats cannot be kept in {folder}: {nearest} is not a folder; set STRATA_TUI_DATA to another one."
            ) from error
        raise UserError(
            f"Chats cannot be kept in {folder}: {error.strerror}; "
            "make the folder writable or set STRATA_TUI_DATA to another one."
        ) from error


def connect(path: Path) -> sqlite3.Connection:
    """A connection in autocommit mode, with the settings that every connection has."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.row_factory = sqlite3.Row
        if _journal(connection) != "wal":
            raise UserError(
                f"The file system of {path.parent} cannot hold the chat database (no shared memory for SQLite's WAL); "
                "set STRATA_TUI_DATA to a local folder."
            )
        connection.execute("PRAGMA synchronous = FULL")  # a commit survives a power cut
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")  # what is removed is overwritten
    except BaseException:
        connection.close()
        raise
    return connection


def _journal(connection: sqlite3.Connection) -> str:
    """Sets the journal to WAL; which it is then."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            # Where another program changes a new file's journal at the same moment SQLite does not wait: each of them
            # holds a lock that the other would wait for.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return str(mode)


def create_file(path: Path) -> None:
    """Makes the folder and an empty database file that only its owner can read. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Applies what is missing, all of it or nothing, after a copy of an existing database."""
    if _version(connection) == len(migrations):
        return
    with transaction(connection):  # a second program that migrates too waits here
        version = _version(connection)
        if version > len(migrations):
            raise UserError(
                f"The chat database {path} was written by a newer strata-tui (version {version} of its tables, "
                f"this program knows {len(migrations)}); update strata-tui."
            )
        if version and version < len(migrations):
            _backup(path, version)
        for statements in migrations[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(migrations)}")


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A write transaction: committed at the end, rolled back on an exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _backup(path: Path, version: int) -> None:
    """Copies the committed database to `NAME.v1.backup` (`-2`, ... where there is one)."""
    number = 1
    target = path.with_name(f"{path.name}.v{version}.backup")
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.v{version}-{number}.backup")
    part = target.with_name(target.name + ".part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_RDWR | os.O_CREAT, 0o600))
    with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(part)) as copy:
        source.backup(copy)
    os.replace(part, target)


def _sentence(path: Path, error: sqlite3.DatabaseError) -> str:
    name = getattr(error, "sqlite_errorname", None) or ""
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return f"The chat database {path} is damaged ({error}); move it away to start a new one."
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"The chat database {path} is locked by another program; close that program and try again."
    if name.startswith("SQLITE_FULL"):
        return f"The disk of the chat database {path} is full; free some space."
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_IOERR")):
        return (
            f"The chat database {path} cannot be written ({error}); "
            "make its folder writable or set STRATA_TUI_DATA to another one."
        )
    return f"The chat database {path} refused an operation ({error})."
