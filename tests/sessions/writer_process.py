"""A program that writes a reply, for tests: obeys one word a line on stdin, answers each on stdout.

Arguments: the database. Words: `begin TEXT` (a chat with one question, and a running reply),
`checkpoint TEXT`, `finish TEXT`, `create TITLE`, `add CHAT TEXT`, `claim CHAT`, `release CHAT`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from strata_tui.sessions.rows import Status
from strata_tui.sessions.store import Store


def main() -> None:
    store = Store(Path(sys.argv[1]))
    print("open", flush=True)
    reply = 0
    for line in sys.stdin:
        word, _, text = line.rstrip("\n").partition(" ")
        if word == "begin":
            chat = store.create_session().result()
            store.add_user_message(chat, text).result()
            reply = store.begin_reply(chat, model="m").result()
            print(chat, flush=True)
        elif word == "checkpoint":
            store.checkpoint_reply(reply, text, "thought").result()
            print("kept", flush=True)
        elif word == "finish":
            store.finish_reply(reply, Status.DONE, text).result()
            print("done", flush=True)
        elif word == "create":
            print(store.create_session(title=text).result(), flush=True)
        elif word == "claim":
            print(store.claim(int(text)).result(), flush=True)
        elif word == "release":
            store.release(int(text)).result()
            print("free", flush=True)
        elif word == "add":
            chat_id, _, text = text.partition(" ")
            print(store.add_user_message(int(chat_id), text).result(), flush=True)
    store.close()


if __name__ == "__main__":
    main()
