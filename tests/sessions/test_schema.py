from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from strata_tui.errors import UserError
from strata_tui.sessions import schema
from strata_tui.sessions.store import Store

NOW = len(schema.MIGRATIONS)
NEXT = (*schema.MIGRATIONS, ("ALTER TABLE sessions ADD COLUMN colour INTEGER NOT NULL DEFAULT 0",))


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
    assert connection.execute("SELECT title, colour FROM sessions").fetchone()[:] == ("old", 0)
    connection.close()
    assert version(filled) == NOW + 1
    backup = filled.with_name(f"chats.sqlite3.v{NOW}.backup")
    assert version(backup) == NOW
    assert backup.stat().st_mode & 0o077 == 0
    with Store(backup) as old:
        assert [s.title for s in old.list_sessions()] == ["old"]


def test_a_database_of_the_first_version_is_brought_up_to_date(path: Path) -> None:
    schema.create_file(path)
    old = schema.connect(path)  # a program of the first version, which stays open
    schema.migrate(old, path, schema.MIGRATIONS[:1])
    old.execute("INSERT INTO sessions (title, created, updated) VALUES ('first', 1, 2)")
    write = (
        "INSERT INTO messages (session_id, role, text, status, created, updated) VALUES (1, 'user', ?, 'done', 3, 3)"
    )
    old.execute(write, ("about ducks",))
    with Store(path) as store:
        info = store.session(1)
        assert (info.title, info.created, info.pinned, info.options) == ("first", 1.0, False, {})
        assert [hit.message for hit in store.search("ducks")] == [1]
        old.execute(write, ("about geese",))  # nothing it writes is refused, and it is found too
        old.execute("UPDATE messages SET text = 'about swans' WHERE id = 1")
        old.execute("DELETE FROM messages WHERE id = 2")
        assert [hit.message for hit in store.search("about")] == [1]
        assert store.search("ducks") == []
    old.close()
    assert version(path.with_name("chats.sqlite3.v1.backup")) == 1


def test_a_failed_migration_changes_nothing(filled: Path) -> None:
    broken = (*NEXT[:-1], (*NEXT[-1], "THIS IS NOT SQL"))
    connection = schema.connect(filled)
    with pytest.raises(sqlite3.OperationalError):
        schema.migrate(connection, filled, broken)
    connection.close()
    with Store(filled) as store:  # still of the old version, all there
        assert [s.title for s in store.list_sessions()] == ["old"]
    connection = schema.connect(filled)
    schema.migrate(connection, filled, NEXT)  # and the next attempt does not lose the first copy
    connection.close()
    assert {p.name for p in filled.parent.glob("*.backup")} == {
        f"chats.sqlite3.v{NOW}.backup",
        f"chats.sqlite3.v{NOW}-2.backup",
    }


def test_a_newer_database_is_refused_and_left_alone(filled: Path) -> None:
    connection = schema.connect(filled)
    schema.migrate(connection, filled, NEXT)
    connection.close()
    with pytest.raises(UserError, match="newer strata-tui"):
        Store(filled)
    assert version(filled) == NOW + 1


def test_settings_of_every_connection(path: Path) -> None:
    Store(path).close()
    connection = schema.connect(path)
    names = ("journal_mode", "foreign_keys", "busy_timeout", "secure_delete")
    values = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
    connection.close()
    assert values == ["wal", 1, 5000, 1]
