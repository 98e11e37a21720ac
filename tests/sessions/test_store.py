from __future__ import annotations

import os
import sqlite3
import threading
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import pytest

from strata_tui.engine.counters import Counters, PhaseCounters, ReplyStats
from strata_tui.errors import UserError
from strata_tui.sessions.rows import Role, Status
from strata_tui.sessions.store import Store
from strata_tui.sessions.titles import TITLE_LENGTH, title_from


def test_a_turn_is_kept_whole(path: Path) -> None:
    stats = ReplyStats(prompt_tokens=7, reply_tokens=3, counters=Counters(decode=PhaseCounters(picks=4, hits=3)))
    with Store(path) as store:
        chat = store.create_session(system="Be brief.", model="tiny").result()
        asked = store.add_user_message(chat, "What is a slot?").result()
        reply = store.begin_reply(chat, model="tiny", params={"temperature": 0.5, "seed": None}).result()
        store.finish_reply(reply, Status.DONE, "Room for a blob.", "hm", stats.to_dict()).result()
    with Store(path) as store:
        info = store.session(chat)
        assert (info.title, info.system, info.model, info.messages) == ("What is a slot?", "Be brief.", "tiny", 2)
        question, answer = store.branch(chat)
        assert (question.id, question.role, question.text, question.status) == (
            asked,
            Role.USER,
            "What is a slot?",
            Status.DONE,
        )
        assert (answer.id, answer.parent_id, answer.role, answer.status) == (reply, asked, Role.ASSISTANT, Status.DONE)
        assert (answer.text, answer.thinking, answer.model) == ("Room for a blob.", "hm", "tiny")
        assert answer.params == {"temperature": 0.5, "seed": None}
        assert answer.reply_stats == stats


def test_futures_stand_for_ids_so_nothing_has_to_wait(store: Store) -> None:
    chat = store.create_session()
    store.add_user_message(chat, "Hello")
    reply = store.begin_reply(chat)
    store.checkpoint_reply(reply, "Hi")
    store.finish_reply(reply, Status.STOPPED, "Hi th")
    store.flush()
    assert [(m.text, m.status) for m in store.branch(chat.result())] == [
        ("Hello", Status.DONE),
        ("Hi th", Status.STOPPED),
    ]


def test_a_user_message_is_committed_when_its_future_is_done(store: Store, path: Path) -> None:
    chat = store.create_session().result()
    store.add_user_message(chat, "first of all").result()
    with closing(sqlite3.connect(path)) as other:  # sees committed rows only
        assert other.execute("SELECT text FROM messages").fetchall() == [("first of all",)]


def test_writes_are_done_on_one_thread_and_in_order(store: Store) -> None:
    threads: set[str] = set()
    chat = store.create_session().result()
    for n in range(50):
        store.set_draft(chat, f"draft {n}").add_done_callback(lambda _: threads.add(threading.current_thread().name))
    store.flush()
    assert store.session(chat).draft == "draft 49"
    assert threads <= {"store-writer", threading.current_thread().name}
    assert "store-writer" in threads


def test_a_caller_does_not_wait_while_another_program_holds_the_file(store: Store, path: Path) -> None:
    chat = store.create_session().result()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        waiting = store.set_draft(chat, "later")
        assert store.session(chat).draft == ""  # reading goes on too
        assert not waiting.done()
    finally:
        other.execute("COMMIT")
        other.close()
    waiting.result()
    assert store.session(chat).draft == "later"


def test_chats_are_listed_by_last_message(store: Store) -> None:
    first, second = (store.create_session(title=t).result() for t in ("one", "two"))
    assert [s.id for s in store.list_sessions()] == [second, first]
    store.add_user_message(first, "again").result()
    assert [s.id for s in store.list_sessions()] == [first, second]
    store.rename(second, "  second\none ").result()
    assert [s.title for s in store.list_sessions()] == ["one", "second one"]


def test_delete_is_undone_by_restore(store: Store) -> None:
    chat = store.create_session(title="dear").result()
    store.add_user_message(chat, "keep me").result()
    store.delete(chat).result()
    assert store.list_sessions() == []
    assert [s.id for s in store.list_sessions(deleted=True)] == [chat]
    store.restore(chat).result()
    assert [s.title for s in store.list_sessions()] == ["dear"]
    assert [m.text for m in store.branch(chat)] == ["keep me"]


def test_branches(store: Store) -> None:
    chat = store.create_session().result()
    question = store.add_user_message(chat, "q").result()
    first = store.begin_reply(chat).result()
    store.finish_reply(first, Status.DONE, "a1").result()
    second = store.begin_reply(chat, question).result()  # regenerate
    store.finish_reply(second, Status.DONE, "a2").result()
    store.add_user_message(chat, "then").result()
    store.add_user_message(chat, "q, edited", None).result()  # edit the first message
    assert [m.text for m in store.branch(chat)] == ["q, edited"]
    tree = store.tree(chat)
    assert [m.text for m in tree.siblings(first)] == ["a1", "a2"]
    assert [m.text for m in tree.siblings(question)] == ["q", "q, edited"]
    store.set_leaf(chat, tree.newest_leaf(question)).result()
    assert [m.text for m in store.branch(chat)] == ["q", "a2", "then"]
    store.set_leaf(chat, first).result()
    assert [m.text for m in store.branch(chat)] == ["q", "a1"]
    store.set_leaf(chat, None).result()
    assert store.branch(chat) == []


def test_a_message_cannot_follow_one_of_another_chat(store: Store) -> None:
    one, two = store.create_session().result(), store.create_session().result()
    message = store.add_user_message(one, "here").result()
    with pytest.raises(UserError, match="FOREIGN KEY"):
        store.add_user_message(two, "there", message).result()
    with pytest.raises(UserError, match="FOREIGN KEY"):
        store.set_leaf(two, message).result()
    assert store.messages(two) == []


def test_sending_empties_the_draft_and_keeps_a_given_title(store: Store) -> None:
    chat = store.create_session().result()
    store.set_draft(chat, "half a thou").result()
    assert store.session(chat).draft == "half a thou"
    store.rename(chat, "mine").result()
    store.add_user_message(chat, "half a thought").result()
    assert (store.session(chat).draft, store.session(chat).title) == ("", "mine")


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("short", "short"),
        ("\n  \n second line counts\nthird", "second line counts"),
        ("a\tb   c\x1b[31m d", "a b c d"),
        ("word " * 30, " ".join(["word"] * 12) + "…"),
        ("x" * 200, "x" * (TITLE_LENGTH - 1) + "…"),
        ("", ""),
    ],
)
def test_title_from(text: str, title: str) -> None:
    assert title_from(text) == title
    assert len(title) <= TITLE_LENGTH


def test_any_text_is_kept(store: Store) -> None:
    chat = store.create_session().result()
    for text in ("\0 nul", "日本語 👩‍👩‍👧 e\u0301", "line\r\nline", "\x1b[2J", ""):
        message = store.add_user_message(chat, text).result()
        assert store.branch(chat)[-1].text == text, message
    store.add_user_message(chat, "lone \udcff").result()
    assert store.branch(chat)[-1].text == "lone \ufffd"


def test_a_failed_write_is_told_and_later_ones_go_on(path: Path) -> None:
    told: list[Exception] = []
    with Store(path, told.append) as store:
        missing = store.add_user_message(4711, "to nobody")
        with pytest.raises(UserError, match="no chat 4711"):
            missing.result()
        follow: Future[int] = store.begin_reply(4711, missing)
        with pytest.raises(UserError, match="no chat 4711"):
            follow.result()
        assert len(told) == 2
        assert store.create_session().result() > 0
        with pytest.raises(UserError, match="no chat 4711"):
            store.session(4711)


def test_a_write_that_fails_half_way_leaves_nothing(store: Store) -> None:
    chat = store.create_session().result()
    with pytest.raises(TypeError):
        store.begin_reply(chat, params={"seed": object()}).result()
    assert store.messages(chat) == []
    assert store.session(chat).leaf is None


def test_a_finished_reply_does_not_change(store: Store) -> None:
    chat = store.create_session().result()
    store.add_user_message(chat, "q")
    reply = store.begin_reply(chat).result()
    store.finish_reply(reply, Status.ERROR, "half", note="the device is lost").result()
    with pytest.raises(UserError, match="not being written"):
        store.checkpoint_reply(reply, "late").result()
    assert [(m.text, m.note) for m in store.branch(chat)][1] == ("half", "the device is lost")
    with pytest.raises(ValueError, match="running"):
        store.finish_reply(reply, Status.RUNNING, "x")


def test_closing_while_a_reply_runs_marks_it(path: Path) -> None:
    store = Store(path)
    chat = store.create_session()
    store.add_user_message(chat, "q")
    reply = store.begin_reply(chat)
    store.checkpoint_reply(reply, "so far")
    store.close()  # takes all that was queued
    store.close()
    with pytest.raises(RuntimeError, match="closed"):
        store.create_session()
    with pytest.raises(RuntimeError, match="closed"):
        store.list_sessions()
    with closing(sqlite3.connect(path)) as other:  # marked by the one that closed, not only by the next to open
        assert other.execute("SELECT status FROM messages WHERE id = 2").fetchone() == ("interrupted",)
    with Store(path) as again:
        assert [(m.text, m.status) for m in again.branch(chat.result())][1] == ("so far", Status.INTERRUPTED)


def test_files_are_private(store: Store, path: Path) -> None:
    store.create_session().result()
    for file in path.parent.glob("chats.sqlite3*"):
        assert file.stat().st_mode & 0o077 == 0, file


@pytest.mark.parametrize("folder", ["/proc/no-such-folder", "{tmp}/file", "{tmp}/file/below"])
def test_an_unwritable_folder_is_one_clear_sentence(folder: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file, not a folder")
    path = Path(folder.replace("{tmp}", str(tmp_path))) / "chats.sqlite3"
    with pytest.raises(UserError, match="STRATA_TUI_DATA") as caught:
        Store(path)
    assert str(path.parent) in str(caught.value)
    assert (f"{tmp_path}/file is not a folder" in str(caught.value)) == folder.startswith("{tmp}")
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="STRATA_TUI_DATA"):
        Store(tmp_path / "chats.sqlite3")


def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_bytes(b"these are not the chats you look for" * 100)
    with pytest.raises(UserError, match="is damaged"):
        Store(path)
    assert path.read_bytes().startswith(b"these are not")


def test_a_damaged_database(path: Path) -> None:
    with Store(path) as store:
        chat = store.create_session().result()
        for n in range(200):
            store.add_user_message(chat, f"{n} " * 200).result()
    raw = bytearray(path.read_bytes())
    raw[8192:] = os.urandom(len(raw) - 8192)
    path.write_bytes(raw)

    def use() -> None:
        with Store(path) as store:
            store.list_sessions()
            store.messages(chat)

    with pytest.raises(UserError, match="is damaged"):
        use()


def test_a_full_disk_is_told_and_loses_nothing_kept_before(path: Path) -> None:
    with Store(path) as store:
        chat = store.create_session(title="full").result()
        store.add_user_message(chat, "kept").result()
        store._database._writer.execute("PRAGMA max_page_count = 1")  # SQLite's own limit: no page can be added
        with pytest.raises(UserError, match="is full"):
            store.add_user_message(chat, "x" * 100_000).result()
        assert [m.text for m in store.branch(chat)] == ["kept"]
        store._database._writer.execute("PRAGMA max_page_count = 1000000")
        store.add_user_message(chat, "y" * 100_000).result()
        assert [len(m.text) for m in store.branch(chat)] == [4, 100_000]
