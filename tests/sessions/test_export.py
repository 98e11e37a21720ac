from __future__ import annotations

import json
import stat
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from strata_tui import __version__
from strata_tui.engine.counters import Counters, PhaseCounters, ReplyStats
from strata_tui.errors import UserError
from strata_tui.sessions.export import file_name, to_json, to_markdown, write_export
from strata_tui.sessions.rows import MessageRow, Role, SessionInfo, Status
from strata_tui.sessions.store import Store

STATS = ReplyStats(
    prompt_tokens=30,
    reused_tokens=10,
    reply_tokens=21,
    prompt_seconds=0.5,
    first_token_seconds=0.625,
    decode_seconds=2.0,
    counters=Counters(prompt=PhaseCounters(picks=0), decode=PhaseCounters(picks=8, hits=6)),
)


def chat(store: Store, *replies: tuple[str, Status]) -> tuple[SessionInfo, list[MessageRow]]:
    session = store.create_session(system="Be brief.", model="tiny-moe").result()
    for n, (text, status) in enumerate(replies):
        store.add_user_message(session, f"Question {n}: why?")
        reply = store.begin_reply(session, model="tiny-moe")
        store.finish_reply(reply, status, text, "let me see\n\nyes", STATS.to_dict())
    store.flush()
    return store.session(session), store.branch(session)


def test_markdown(store: Store) -> None:
    session, branch = chat(store, ("Because.", Status.DONE), ("Well", Status.STOPPED))
    session = replace(session, created=0.0, updated=86400.0, id=5)
    branch = [replace(m, created=60.0, id=n) for n, m in enumerate(branch, 1)]
    numbers = """    prompt_tokens: 30
    reused_tokens: 10
    reply_tokens: 21
    prompt_tokens_per_second: 40.0
    tokens_per_second: 10.0
    first_token_seconds: 0.625
    prompt_hit_rate: null
    hit_rate: 0.75
"""
    assert to_markdown(session, branch) == (
        f"""---
title: "Question 0: why?"
model: "tiny-moe"
created: "1970-01-01T00:00:00+00:00"
updated: "1970-01-02T00:00:00+00:00"
exported_by: "strata-tui {__version__}"
chat: 5
replies:
  - message: 2
    model: "tiny-moe"
    created: "1970-01-01T00:01:00+00:00"
    status: "done"
{numbers}  - message: 4
    model: "tiny-moe"
    created: "1970-01-01T00:01:00+00:00"
    status: "stopped"
{numbers}---

# Question 0: why?

## System

Be brief.

## User

Question 0: why?

## Assistant

Because.

## User

Question 1: why?

## Assistant (stopped)

Well
"""
    )


def test_thinking_is_left_out_unless_asked_for(store: Store) -> None:
    session, branch = chat(store, ("Because.", Status.DONE))
    assert "let me see" not in to_markdown(session, branch)
    assert "\n## Assistant\n\n> let me see\n>\n> yes\n\nBecause.\n" in to_markdown(session, branch, thinking=True)


def test_no_control_characters_reach_the_file(store: Store) -> None:
    session, branch = chat(store, ("a\x1b[2Jb\x1b]0;title\x07c\x9bd\r\nstay\there\x08", Status.DONE))
    session = replace(session, title="t\x1b[1mitle\nx", model="m\x07", system="s\x1bc")
    text = to_markdown(session, [replace(m, model="\x1b[0mm", note="n\x00") for m in branch])
    assert "\nabcd\nstay\there\n" in text
    assert not [c for c in text if ord(c) < 32 and c not in "\n\t" or 127 <= ord(c) < 160]
    assert 'title: "title x"' in text and "# title x\n" in text  # one line, whatever the title holds


@pytest.mark.parametrize(
    ("text", "closing"),
    [
        ("```py\nx = 1", "```"),
        ("~~~~\ncode\n~~~", "~~~~"),
        ("  ```\nopen ``` not closed here", "```"),
        ("```py\nx\n```", ""),
        ("````\n```\n````", ""),
        ("``` inline ``` text", ""),
        ("    ```\nan indented block is no fence", ""),
        ("no fence", ""),
    ],
)
def test_an_open_code_fence_does_not_swallow_the_next_turn(store: Store, text: str, closing: str) -> None:
    session, branch = chat(store, (text, Status.STOPPED), ("next", Status.DONE))
    body = f"{text}\n{closing}" if closing else text
    assert f"## Assistant (stopped)\n\n{body}\n\n## User\n" in to_markdown(session, branch)


def test_json_holds_the_whole_tree_unchanged(store: Store) -> None:
    session, branch = chat(store, ("raw \x1b[31m text 日本", Status.DONE), ("two", Status.DONE))
    store.begin_reply(session.id, branch[0].id).result()
    session, messages = store.session(session.id), store.messages(session.id)
    assert len(messages) == 5
    text = to_json(session, messages)
    assert "日本" in text
    document = json.loads(text)
    assert (document["schema"], document["schema_version"], document["app_version"]) == (
        "strata-tui chat",
        1,
        __version__,
    )
    assert SessionInfo(**document["session"]) == session
    rebuilt = [
        MessageRow(**(m | {"role": Role(m["role"]), "status": Status(m["status"])})) for m in document["messages"]
    ]
    assert rebuilt == messages
    assert rebuilt[1].reply_stats == STATS


def test_an_empty_chat(store: Store) -> None:
    session = store.session(store.create_session().result())
    assert "replies: []\n---\n\n# Chat\n" in to_markdown(session, [])
    assert json.loads(to_json(session, []))["session"] == asdict(session)


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("What is a slot?", "chat-3-what-is-a-slot.md"),
        ("../../etc/passwd", "chat-3-etc-passwd.md"),
        ("\x1b[31m", "chat-3.md"),
        ("日本 語", "chat-3-日本-語.md"),
        ("x" * 300, f"chat-3-{'x' * 40}.md"),
        ("_a_", "chat-3-a.md"),
    ],
)
def test_file_name(store: Store, title: str, name: str) -> None:
    session = store.session(store.create_session().result())
    assert file_name(replace(session, id=3, title=title), "md") == name


def test_a_file_that_exists_is_never_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "chat.md"
    written = [write_export(f"text {n}", target) for n in range(3)]
    assert [p.name for p in written] == ["chat.md", "chat-2.md", "chat-3.md"]
    assert [p.read_text() for p in written] == ["text 0", "text 1", "text 2"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["chat-2.md", "chat-3.md", "chat.md"]  # no temporary left
    assert stat.S_IMODE(target.stat().st_mode) & 0o600 == 0o600


def test_an_export_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        write_export("text", tmp_path / "no folder" / "chat.md")
