from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from strata_tui.errors import UserError
from strata_tui.sessions import schema
from strata_tui.sessions.store import Store

NEXT = (*schema.MIGRATIONS, ("ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0",))


@pytest.fixture
def filled(path: Path) -> Path:
    with Store(path) as store:
        store.add_user_message(store.create_session(title="old"), "hello").result()
    return path


def version(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        number: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return number
    finally:
        connection.close()


def test_a_migration_keeps_a_copy_of_the_old_database(filled: Path) -> None:
    connection = schema.connect(filled)
    schema.migrate(connection, filled, NEXT)
    assert connection.execute("SELECT title, pinned FROM sessions").fetchone()[:] == ("old", 0)
    connection.close()
    assert version(filled) == 2
    backup = filled.with_name("chats.sqlite3.v1.backup")
    assert version(backup) == 1
    assert backup.stat().st_mode & 0o077 == 0
    with Store(backup) as old:
        assert [s.title for s in old.list_sessions()] == ["old"]


def test_a_failed_migration_changes_nothing(filled: Path) -> None:
    broken = (*NEXT[:-1], (*NEXT[-1], "THIS IS NOT SQL"))
    connection = schema.connect(filled)
    with pytest.raises(sqlite3.OperationalError):
        schema.migrate(connection, filled, broken)
    connection.close()
    with Store(filled) as store:  # still of version 1, all there
        assert [s.title for s in store.list_sessions()] == ["old"]
    connection = schema.connect(filled)
    schema.migrate(connection, filled, NEXT)  # and the next attempt does not lose the first copy
    connection.close()
    assert {p.name for p in filled.parent.glob("*.backup")} == {
        "chats.sqlite3.v1.backup",
        "chats.sqlite3.v1-2.backup",
    }


def test_a_newer_database_is_refused_and_left_alone(filled: Path) -> None:
    connection = schema.connect(filled)
    schema.migrate(connection, filled, NEXT)
    connection.close()
    with pytest.raises(UserError, match="newer strata-tui"):
        Store(filled)
    assert version(filled) == 2


def test_settings_of_every_connection(path: Path) -> None:
    Store(path).close()
    connection = schema.connect(path)
    values = [connection.execute(f"PRAGMA {p}").fetchone()[0] for p in ("journal_mode", "foreign_keys", "busy_timeout")]
    connection.close()
    assert values == ["wal", 1, 5000]
