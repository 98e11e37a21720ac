"""What is done to whole chats: pinning, forking, the bin, and chats that are open elsewhere."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from strata_tui.config import snapshot_dir
from strata_tui.engine.snapshot_names import chat_key, file_name
from strata_tui.errors import UserError
from strata_tui.sessions import bin
from strata_tui.sessions.portable import portable
from strata_tui.sessions.rows import MessageRow, Status
from strata_tui.sessions.store import Store


def titled(store: Store, *titles: str) -> list[int]:
    return [store.create_session(title=title).result() for title in titles]


def test_pinned_chats_come_first(store: Store) -> None:
    one, two, three = titled(store, "one", "two", "three")
    store.set_pinned(one, True).result()
    assert [s.id for s in store.list_sessions()] == [one, three, two]
    assert [s.pinned for s in store.list_sessions()] == [True, False, False]
    store.set_pinned(one, False).result()
    assert [s.id for s in store.list_sessions()] == [three, two, one]


def test_options_are_kept(store: Store) -> None:
    [session] = titled(store, "one")
    store.set_options(session, {"temperature": 0.5, "thinking": "low"}).result()
    assert store.session(session).options == {"temperature": 0.5, "thinking": "low"}
    store.set_options(session, {}).result()
    assert store.session(session).options == {}


def branched(store: Store) -> tuple[int, list[int]]:
    """A chat with a question, two replies, and a second turn after the first reply."""
    session = store.create_session(title="Ducks", system="Be brief.", model="tiny").result()
    question = store.add_user_message(session, "q").result()
    keys = [question]
    for text in ("a1", "a2"):
        reply = store.begin_reply(session, question, model="tiny", params={"seed": 1}).result()
        store.finish_reply(reply, Status.STOPPED, text, "hm", {"reply_tokens": 3}, "note").result()
        keys.append(reply)
    keys.append(store.add_user_message(session, "then", keys[1]).result())
    return session, keys


def whole(message: MessageRow) -> MessageRow:
    """Without what names its place."""
    return replace(message, id=0, session_id=0, parent_id=None, owner_pid=None)


def test_a_fork_has_all_of_its_branch_and_nothing_else(store: Store) -> None:
    session, (question, first, second, then) = branched(store)
    for leaf, path in ((first, [question, first]), (second, [question, second]), (then, [question, first, then])):
        copy = store.fork(session, leaf).result()
        rows = {m.id: m for m in store.messages(session)}
        assert [whole(m) for m in store.messages(copy)] == [whole(rows[key]) for key in path]
        assert store.branch(copy) == store.messages(copy)
        info = store.session(copy)
        assert (info.title, info.system, info.model, info.draft) == ("Ducks", "Be brief.", "tiny", "")
    assert [m.text for m in store.branch(store.fork(session).result())] == ["q", "a1", "then"]
    assert len(store.messages(session)) == 4  # it is left alone


def test_a_fork_can_begin_in_the_middle(store: Store) -> None:
    session, (_, first, second, then) = branched(store)
    store.set_sent(session, {then: False}).result()
    copy = store.fork(session, then, first).result()
    assert [(m.text, m.parent_id is None, m.sent) for m in store.branch(copy)] == [
        ("a1", True, True),
        ("then", False, False),
    ]
    assert [m.text for m in store.branch(session)] == ["q", "a1", "then"]
    with pytest.raises(UserError, match=f"Message {second} is not in this branch"):
        store.fork(session, then, second).result()


def test_messages_that_are_left_out(store: Store, path: Path) -> None:
    session, (question, first, *_) = branched(store)
    other, (foreign, *_) = branched(store)
    store.set_sent(session, {question: False, first: False}).result()
    assert [m.sent for m in store.branch(session)] == [False, False, True]
    with pytest.raises(UserError, match=f"Chat {session} has no message {foreign}"):
        store.set_sent(session, {question: True, foreign: False}).result()
    assert [m.sent for m in store.branch(session)] == [False, False, True], "all of it or nothing"
    store.set_sent(session, {question: True}).result()
    assert [m.sent for m in store.branch(session)] == [True, False, True]
    assert all(m.sent for m in store.messages(other))


def test_the_mark_for_what_is_not_sent_keeps_imports_known(store: Store) -> None:
    session, (question, *_) = branched(store)
    chat = portable(store.session(session), store.messages(session))
    values = asdict(chat)
    for message in values["messages"]:
        del message["sent"]  # as it was made into a digest before there was such a mark
    assert chat.digest() == hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    store.set_sent(session, {question: False}).result()
    assert portable(store.session(session), store.messages(session)).digest() != chat.digest()


def test_a_fork_of_a_running_reply_is_not_running(store: Store) -> None:
    [session] = titled(store, "one")
    store.add_user_message(session, "q")
    reply = store.begin_reply(session)
    store.checkpoint_reply(reply, "so far")
    copy = store.fork(session).result()
    assert [(m.text, m.status) for m in store.branch(copy)] == [("q", Status.DONE), ("so far", Status.INTERRUPTED)]
    store.finish_reply(reply, Status.DONE, "so far, so good").result()


def test_what_cannot_be_forked(store: Store) -> None:
    one, two = titled(store, "one", "two")
    message = store.add_user_message(one, "here").result()
    with pytest.raises(UserError, match=f"Chat {two} has no message {message}"):
        store.fork(two, message).result()
    with pytest.raises(UserError, match="no chat 99"):
        store.fork(99).result()
    assert store.branch(store.fork(two).result()) == []


def test_the_same_chat_is_taken_in_once(store: Store) -> None:
    session, _ = branched(store)
    chat = portable(store.session(session), store.messages(session))
    other = replace(chat, title="Geese")
    [copy, _, _] = store.add_chats([chat, other, chat]).result()
    assert copy is not None and copy != session
    assert store.add_chats([chat, other]).result() == [None, None]
    store.delete(copy).result()
    assert store.add_chats([chat]).result() != [None]  # it was deleted, and is wanted again
    assert [s.title for s in store.list_sessions()].count("Ducks") == 2


# The bin


def test_the_bin_is_emptied_and_nothing_is_left(store: Store, path: Path) -> None:
    keep, gone = titled(store, "keep", "gone")
    for session in (keep, gone):
        question = store.add_user_message(session, "zebrafish").result()
        store.finish_reply(store.begin_reply(session, question), Status.DONE, "an answer")
    assert len(store.search("zebrafish")) == 2
    store.add_user_message(gone, "quagga " * 500).result()
    store.search("quagga")
    store.delete(gone).result()
    assert store.empty_bin().result() == [gone]
    assert store.empty_bin().result() == []
    assert store.list_sessions(deleted=True) == []
    with pytest.raises(UserError, match="no chat"):
        store.session(gone)
    assert [h.session for h in store.search("zebrafish")] == [keep]
    store.close()
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM messages").fetchone() == (2,)
        assert other.execute("PRAGMA foreign_key_check").fetchall() == []
        assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert b"quagga" not in path.read_bytes()


def test_one_chat_can_be_removed_alone(store: Store) -> None:
    one, two, alive = titled(store, "one", "two", "alive")
    store.delete(one)
    store.delete(two).result()
    assert store.empty_bin(session=alive).result() == []
    assert store.empty_bin(session=one).result() == [one]
    assert [s.id for s in store.list_sessions(deleted=True)] == [two]
    assert [s.id for s in store.list_sessions()] == [alive]


def test_after_thirty_days_it_is_gone(path: Path) -> None:
    with Store(path) as store:
        young, old = titled(store, "young", "old")
        store.delete(young)
        store.delete(old).result()
        deleted = store.session(old).deleted_at
        assert deleted is not None
    for age, left in ((bin.KEPT_SECONDS - 100, {young, old}), (bin.KEPT_SECONDS + 100, {young})):
        with closing(sqlite3.connect(path)) as other:
            other.execute("UPDATE sessions SET deleted_at = ? WHERE id = ?", (deleted - age, old))
            other.commit()
        with Store(path) as store:
            store.flush()
            assert {s.id for s in store.list_sessions(deleted=True)} == left


def test_days_left() -> None:
    day = 24 * 3600.0
    assert [bin.days_left(0.0, n * day) for n in (0, 0.5, 29.5, 30, 40)] == [30, 29, 0, 0, 0]


# Chats that are open in another program


def test_a_chat_open_elsewhere_is_read_only(path: Path, start_writer: Callable[[], Any]) -> None:
    writer = start_writer()
    chat = int(writer.tell("create shared"))
    assert writer.tell(f"claim {chat}") == "None"
    with Store(path) as store:
        assert store.claim(chat).result() == writer.process.pid
        refused = "open in another window .process"
        for write in (
            store.add_user_message(chat, "mine"),
            store.begin_reply(chat),
            store.set_draft(chat, "mine"),
            store.set_leaf(chat, None),
            store.set_system(chat, "mine"),
            store.set_sent(chat, {1: False}),
            store.delete(chat),
        ):
            with pytest.raises(UserError, match=refused):
                write.result()
        assert store.messages(chat) == []
        store.rename(chat, "renamed").result()
        store.set_pinned(chat, True).result()
        copy = store.fork(chat).result()
        store.add_user_message(copy, "mine").result()
        assert writer.tell(f"add {chat} theirs") != "None"
        assert writer.tell(f"release {chat}") == "free"
        assert store.claim(chat).result() is None
        store.add_user_message(chat, "mine").result()
        assert [m.text for m in store.branch(chat)] == ["theirs", "mine"]
        assert writer.tell(f"claim {chat}") == str(os.getpid())


def test_the_claim_of_a_dead_program_counts_for_nothing(path: Path, start_writer: Callable[[], Any]) -> None:
    writer = start_writer()
    chat = int(writer.tell("create shared"))
    writer.tell(f"claim {chat}")
    writer.kill()
    with Store(path) as store:
        assert store.claim(chat).result() is None
        store.add_user_message(chat, "mine").result()


def test_closing_gives_all_claims_up(path: Path) -> None:
    with Store(path) as one, Store(path) as two:
        chats = titled(one, "a", "b")
        assert [one.claim(c).result() for c in chats] == [None, None]
        assert [one.claim(c).result() for c in chats] == [None, None]  # its own
        assert None not in [two.claim(c).result() for c in chats]
        one.close()
        assert [two.claim(c).result() for c in chats] == [None, None]
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(owner) FROM sessions").fetchone() == (0,)


def test_the_bin_keeps_what_is_open_elsewhere(path: Path) -> None:
    with Store(path) as one, Store(path) as two:
        [chat] = titled(one, "a")
        one.delete(chat)
        one.claim(chat).result()
        assert two.empty_bin().result() == []
        one.release(chat).result()
        assert two.empty_bin().result() == [chat]
        with pytest.raises(UserError, match="no chat"):
            one.claim(chat).result()


def test_kv_snapshots_go_with_their_chats(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the disk, whatever model they are of; others' files stay."""
    monkeypatch.setenv("STRATA_TUI_CACHE", str(tmp_path / "cache"))
    folder = snapshot_dir()
    folder.mkdir(parents=True)
    one, other = "0123456789abcdef", "fedcba9876543210"

    def put(*names: str) -> None:
        for name in names:
            (folder / name).write_bytes(b"x")

    with Store(path) as store:
        keep, gone = titled(store, "keep", "gone")
        elsewhere = chat_key(tmp_path / "other.sqlite3", gone)
        staying = {file_name(one, chat_key(path, keep)), file_name(one, elsewhere), "notes.txt", "strange.kv"}
        put(*staying, *(file_name(i, chat_key(path, gone)) for i in (one, other)))
        store.delete(gone).result()
        assert len(list(folder.iterdir())) == 6, "a deleted chat can be brought back"
        store.empty_bin().result()
        store.flush()
        assert {f.name for f in folder.iterdir()} == staying
    put(file_name(one, chat_key(path, gone)))  # another program still had the chat in RAM
    with Store(path) as store:
        store.flush()
        assert {f.name for f in folder.iterdir()} == staying


def test_only_what_came_to_nothing_is_removed(store: Store) -> None:
    [titled_one] = titled(store, "one")
    draft, options, said, unused = (store.create_session().result() for _ in range(4))
    store.set_draft(draft, "half a")
    store.set_options(options, {"seed": 1})
    store.add_user_message(said, "x").result()
    store.rename(said, "y").result()
    keys = (titled_one, draft, options, said, unused)
    assert [store.remove_unused(key).result() for key in keys] == [False, False, False, False, True]
    assert {s.id for s in store.list_sessions()} == set(keys) - {unused}
    store.set_draft(draft, "").result()
    assert store.remove_unused(draft).result()
