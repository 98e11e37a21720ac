"""A reply that ended is written on."""

from __future__ import annotations

import pytest

from strata_tui.errors import UserError
from strata_tui.sessions.rows import Status
from strata_tui.sessions.store import Store


def test_a_reply_is_written_on_and_ends_again(store: Store) -> None:
    session = store.create_session()
    user = store.add_user_message(session, "hello")
    reply = store.begin_reply(session, user)
    store.finish_reply(reply, Status.STOPPED, "half", "thought", {"reply_tokens": 1})
    store.resume_reply(reply).result()
    row = store.messages(session.result())[1]
    assert (row.status, row.text, row.thinking, row.stats) == (Status.RUNNING, "half", "thought", {"reply_tokens": 1})
    store.checkpoint_reply(reply, "half of it", "thought").result()
    store.finish_reply(reply, Status.DONE, "half of it all", "thought", {"reply_tokens": 3}).result()
    row = store.messages(session.result())[1]
    assert (row.status, row.text, row.stats) == (Status.DONE, "half of it all", {"reply_tokens": 3})


def test_a_running_reply_and_a_persons_message_cannot_be_resumed(store: Store) -> None:
    session = store.create_session()
    user = store.add_user_message(session, "hello")
    reply = store.begin_reply(session, user)
    for message in (reply, user):
        with pytest.raises(UserError, match="is being written already"):
            store.resume_reply(message).result()


def test_a_resumed_reply_of_a_program_that_dies_keeps_its_text(store: Store) -> None:
    session = store.create_session()
    reply = store.begin_reply(session, store.add_user_message(session, "hello"))
    store.finish_reply(reply, Status.DONE, "half")
    store.resume_reply(reply).result()
    path, chat = store.path, session.result()
    store.close()
    with Store(path) as again:
        row = again.messages(chat)[1]
        assert (row.status, row.text) == (Status.INTERRUPTED, "half")
