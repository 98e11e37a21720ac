"""Two programs on one store, and programs that die."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from strata_tui.errors import UserError
from strata_tui.sessions.rows import Status
from strata_tui.sessions.store import Store


def test_kill_while_a_reply_runs(path: Path, start_writer: Callable[[], Any]) -> None:
    writer = start_writer()
    chat = int(writer.tell("begin What is lost?"))
    for n in range(3):
        assert writer.tell(f"checkpoint {'word ' * (n + 1)}") == "kept"
    writer.kill()
    with Store(path) as store:
        question, reply = store.branch(chat)
        assert (question.text, question.status) == ("What is lost?", Status.DONE)
        assert (reply.text, reply.thinking, reply.status) == ("word word word ", "thought", Status.INTERRUPTED)
        assert reply.owner_pid == writer.process.pid
        assert list(path.with_name("chats.instances").iterdir())  # only our own claim is left
        assert len(list(path.with_name("chats.instances").iterdir())) == 1


def test_a_live_program_keeps_its_reply(path: Path, start_writer: Callable[[], Any]) -> None:
    writer = start_writer()
    chat = int(writer.tell("begin Still there?"))
    writer.tell("checkpoint yes")
    with Store(path) as store:
        assert store.interrupt_dead().result() == 0
        assert store.branch(chat)[-1].status is Status.RUNNING
        assert writer.tell("finish yes, still") == "done"
        assert [(m.text, m.status) for m in store.branch(chat)][-1] == ("yes, still", Status.DONE)
        writer.leave()
        assert [m.status for m in store.branch(chat)] == [Status.DONE, Status.DONE]


def test_a_death_is_noticed_by_the_one_that_stays(path: Path, start_writer: Callable[[], Any]) -> None:
    with Store(path) as store:
        writer = start_writer()
        chat = int(writer.tell("begin q"))
        writer.kill()
        assert store.interrupt_dead().result() == 1
        assert store.branch(chat)[-1].status is Status.INTERRUPTED


def test_two_stores_in_one_program(path: Path) -> None:
    with Store(path) as one, Store(path) as two:
        chat = one.create_session(title="shared").result()
        one.add_user_message(chat, "q").result()
        reply = one.begin_reply(chat).result()
        assert two.interrupt_dead().result() == 0
        assert [s.title for s in two.list_sessions()] == ["shared"]
        one.finish_reply(reply, Status.DONE, "a").result()
        two.add_user_message(chat, "from the other").result()
        assert [m.text for m in one.branch(chat)] == ["q", "a", "from the other"]


def test_only_the_program_that_began_a_reply_writes_it(path: Path) -> None:
    with Store(path) as one, Store(path) as two:
        chat = one.create_session().result()
        one.add_user_message(chat, "q").result()
        reply = one.begin_reply(chat).result()
        for write in (two.checkpoint_reply(reply, "mine"), two.finish_reply(reply, Status.DONE, "mine")):
            with pytest.raises(UserError, match="not being written by this program"):
                write.result()
        assert [(m.text, m.status) for m in one.branch(chat)][1] == ("", Status.RUNNING)


def test_a_claim_that_is_gone_is_a_dead_one(path: Path, start_writer: Callable[[], Any]) -> None:
    writer = start_writer()
    chat = int(writer.tell("begin q"))
    writer.kill()
    for claim in path.with_name("chats.instances").iterdir():
        claim.unlink()
    with Store(path) as store:
        assert store.branch(chat)[-1].status is Status.INTERRUPTED


def test_both_write_at_once_and_nothing_is_lost(path: Path, start_writer: Callable[[], Any]) -> None:
    writers = [start_writer(), start_writer()]
    with Store(path) as store:
        chat = store.create_session(title="busy").result()

        def add(writer: Any, name: str) -> None:
            for n in range(20):
                writer.tell(f"add {chat} {name}{n}")

        threads = [Thread(target=add, args=(w, f"w{i}-")) for i, w in enumerate(writers)]
        for thread in threads:
            thread.start()
        mine = [store.add_user_message(chat, f"me-{n}") for n in range(20)]
        for thread in threads:
            thread.join()
        for future in mine:
            future.result()
        texts = [m.text for m in store.branch(chat)]  # each followed the leaf it found, so one line
        assert sorted(texts) == sorted(f"{who}-{n}" for who in ("w0", "w1", "me") for n in range(20))
        for who in ("w0", "w1", "me"):
            assert [t for t in texts if t.startswith(who)] == [f"{who}-{n}" for n in range(20)]


@pytest.mark.parametrize("again", range(10))  # one in sixty was told of a lock
def test_many_programs_may_open_a_new_store_together(path: Path, again: int) -> None:
    errors: list[Exception] = []
    stores: list[Store] = []

    def open_store() -> None:
        try:
            stores.append(Store(path))
        except Exception as error:
            errors.append(error)

    threads = [Thread(target=open_store) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert errors == []
    assert len(stores) == 6
    assert not list(path.parent.glob("*.backup"))  # nothing was there to be copied
