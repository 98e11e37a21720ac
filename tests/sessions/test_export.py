from __future__ import annotations

import json
import stat
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from strata_tui import __version__
from strata_tui.engine.counters import Counters, DraftCounters, PhaseCounters, ReplyStats
from strata_tui.errors import UserError
from strata_tui.sessions.export import Form, export_text, file_name, form_of, write_export
from strata_tui.sessions.export.document import SCHEMA_VERSION, to_json
from strata_tui.sessions.export.markdown import to_markdown
from strata_tui.sessions.rows import MessageRow, SessionInfo, Status
from strata_tui.sessions.store import Store

STATS = ReplyStats(
    prompt_tokens=30,
    reused_tokens=10,
    reused_ram=10,
    reused_disk=0,
    read_again=3,
    reply_tokens=21,
    prompt_seconds=0.5,
    first_token_seconds=0.625,
    decode_seconds=2.0,
    counters=Counters(
        prompt=PhaseCounters(picks=0, streamed=5),
        decode=PhaseCounters(picks=8, hits=6, misses=2, loads_mirror=1, loads_staged=1, evictions=1, bytes_copied=640),
        swaps=3,
    ),
    drafts=DraftCounters(offered=(4, 2, 0, 0), accepted=(3, 1, 0, 0)),
    context_used=51,
    context_total=512,
    quantization="Q4_0",
)


def chat(store: Store, *replies: tuple[str, Status]) -> tuple[SessionInfo, list[MessageRow]]:
    session = store.create_session(system="Be brief.", model="tiny-moe").result()
    for n, (text, status) in enumerate(replies):
        store.add_user_message(session, f"Question {n}: why?")
        reply = store.begin_reply(session, model="tiny-moe", params={"temperature": 0.5, "seed": None})
        store.finish_reply(reply, status, text, "let me see\n\nyes", STATS.to_dict())
    store.flush()
    return store.session(session), store.branch(session)


def test_markdown(store: Store) -> None:
    session, branch = chat(store, ("Because.", Status.DONE), ("Well", Status.STOPPED))
    session = replace(session, created=0.0, updated=86400.0, id=5)
    branch = [replace(m, created=60.0, id=n) for n, m in enumerate(branch, 1)]
    numbers = """    parameters: {"temperature": 0.5}
    quantization: "Q4_0"
    prompt_tokens: 30
    reused_tokens: 10
    reused_from_ram: 10
    reused_from_disk: 0
    read_again_tokens: 3
    read_tokens: 20
    reply_tokens: 21
    prompt_tokens_per_second: 40.0
    tokens_per_second: 10.0
    first_token_seconds: 0.625
    prompt_hit_rate: null
    hit_rate: 0.75
    misses: 2
    loads_from_mirror: 1
    loads_from_file: 1
    streamed: 5
    evictions: 1
    swaps: 3
    bytes_copied: 640
    drafts_offered: 6
    drafts_accepted: 4
    context_used: 51
    context_total: 512
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
    odd: dict[str, object] = {"params": {"stop": ["\x9b\u2028"]}}
    text = to_markdown(session, [replace(m, model="\x1b[0mm", note="n\x00", **odd) for m in branch])  # type: ignore[arg-type]
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


def branched(store: Store) -> int:
    """1 question - 2 first reply - 4 then - 5 so; 3 second reply; 6 another first question. 4's branch is shown."""
    session = store.create_session(title="Branches", model="m").result()
    question = store.add_user_message(session, "question").result()
    keys = []
    for text in ("first reply", "second reply"):
        keys.append(store.begin_reply(session, question, model="m").result())
        store.finish_reply(keys[-1], Status.DONE, text, "thought of it", STATS.to_dict())
    then = store.add_user_message(session, "then", keys[0]).result()
    store.finish_reply(store.begin_reply(session, then), Status.STOPPED, "so")
    store.add_user_message(session, "another question", None)
    store.set_leaf(session, then + 1).result()
    return session


def test_the_whole_tree_as_markdown(store: Store) -> None:
    text = export_text(store, branched(store), Form.MARKDOWN, whole=True)
    front, _, body = text.removeprefix("---\n").partition("\n---\n")
    assert "\nbranches: 3\n" in front
    assert [line for line in front.splitlines() if "message:" in line] == [
        "  - message: 2",
        "  - message: 5",
        "  - message: 3",
    ]
    assert [line for line in body.splitlines() if line] == [
        "# Branches",
        "## 1. User, version 1 of 2",
        "question",
        "## 2. Assistant, version 1 of 2",
        "first reply",
        "## 4. User",
        "then",
        "## 5. Assistant (stopped)",
        "so",
        "# Branch 2, from message 1",
        "## 3. Assistant, version 2 of 2",
        "second reply",
        "# Branch 3, from the start",
        "## 6. User, version 2 of 2",
        "another question",
    ]


def test_a_tree_whose_shown_branch_is_empty(store: Store) -> None:
    session = branched(store)
    store.set_leaf(session, None).result()
    text = export_text(store, session, Form.MARKDOWN, whole=True)
    assert "# Branches\n\n## 1. User" in text and text.count("\n# Branch ") == 2
    assert "replies: []" in export_text(store, session, Form.MARKDOWN, whole=False)


def test_html_has_all_and_nothing_that_acts(store: Store) -> None:
    session = store.create_session(title="<b>Title</b> & co", system="Be <i>brief</i>.", model="m").result()
    store.add_user_message(session, "<script>alert(1)</script>\n  typed *as* is \x1b[31m")
    reply = store.begin_reply(session, model="m&m")
    text = (
        "# Head\n\n<img src=x onerror=alert(1)> [bad](javascript:alert(1)) [good](https://example.org/?a=1&b=2)\n\n"
        "![picture](https://example.org/p.png)\n\n```python\nx = '<y>'\n```\n\n| a |\n|---|\n| 1 |\n"
    )
    store.finish_reply(reply, Status.DONE, text, "think <hard>", STATS.to_dict(), "note <n>").result()
    page = export_text(store, session, Form.HTML, whole=False, thinking=True)
    reader = Reader()
    reader.feed(page)
    assert not reader.tags & {"script", "img", "iframe", "link", "object", "form", "base", "svg"}
    assert not [a for a in reader.attributes if a.startswith("on")]
    assert reader.links == ["https://example.org/?a=1&b=2", "https://example.org/p.png"]
    assert {"h1", "pre", "table", "a"} <= reader.tags
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert "@media (prefers-color-scheme: dark)" in page
    assert "url(" not in page and "@import" not in page
    for text in ("<b>Title</b> & co", "Be <i>brief</i>.", "<script>alert(1)</script>\n  typed *as* is ", "m&m",
                 "think <hard>", "note <n>", "x = '<y>'", "10.0 tok/s", "hit 75.0%", "first 0.62 s"):  # fmt: skip
        assert text in reader.text, text
    assert "think" not in export_text(store, session, Form.HTML, whole=False).partition("<main>")[2]


def test_the_whole_tree_as_html(store: Store) -> None:
    session = branched(store)
    page = export_text(store, session, Form.HTML, whole=True)
    assert [line for line in page.splitlines() if line.startswith("<h2")] == [
        '<h2 class="branch">Branch 2, from <a href="#m1">message 1</a></h2>',
        '<h2 class="branch">Branch 3, from the start</h2>',
    ]
    assert [f'id="m{n}"' in page for n in range(1, 8)] == [True] * 6 + [False]
    assert "3 branches" in page and "version 2 of 2" in page
    assert "second reply" not in export_text(store, session, Form.HTML, whole=False)


class Reader(HTMLParser):
    """What a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value for name, value in attrs if name in ("href", "src") and value]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("start", ["[" * 20_000, "> " * 90, "* " * 300])
def test_html_of_degenerate_text_is_whole(store: Store, start: str) -> None:
    session = store.create_session().result()
    store.add_user_message(session, "q")
    store.finish_reply(store.begin_reply(session), Status.STOPPED, start + "<x> the end").result()
    page = export_text(store, session, Form.HTML, whole=False)
    assert "&lt;x&gt; the end" in page
    assert page.count("[") >= start.count("[")


def test_json_holds_the_whole_tree_unchanged(store: Store) -> None:
    session = branched(store)
    store.set_draft(session, "raw \x1b[31m \x9b2J\u2028 text 日本").result()
    text = export_text(store, session, Form.JSON, whole=True)
    assert "日本" in text and "\\u001b[31m \\u009b2J\\u2028" in text
    assert not [c for c in text if c != "\n" and not c.isprintable()]
    document = json.loads(text)
    assert (document["schema"], document["schema_version"], document["app_version"]) == (
        "strata-tui chat",
        SCHEMA_VERSION,
        __version__,
    )
    info = store.session(session)
    assert document["session"] == {
        "title": "Branches",
        "created": info.created,
        "updated": info.updated,
        "leaf": 5,
        "system": "",
        "model": "m",
        "draft": "raw \x1b[31m \x9b2J\u2028 text 日本",
        "pinned": False,
        "options": {},
    }
    rows = store.messages(session)
    assert [(m["id"], m["parent_id"]) for m in document["messages"]] == [
        (1, None), (2, 1), (3, 1), (4, 2), (5, 4), (6, None)]  # fmt: skip
    for record, row in zip(document["messages"], rows, strict=True):
        for name in ("role", "text", "thinking", "status", "note", "model", "params", "stats", "created", "updated"):
            assert record[name] == getattr(row, name)
    branch = json.loads(export_text(store, session, Form.JSON, whole=False))
    assert [m["text"] for m in branch["messages"]] == ["question", "first reply", "then", "so"]
    assert branch["session"]["leaf"] == 4


def test_a_running_reply_is_exported_as_interrupted(store: Store) -> None:
    session = store.create_session().result()
    store.add_user_message(session, "q")
    store.begin_reply(session).result()
    assert (
        json.loads(to_json(store.session(session), store.messages(session)))["messages"][1]["status"] == "interrupted"
    )


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("a.md", Form.MARKDOWN),
        ("b.HTML", Form.HTML),
        ("c.htm", Form.HTML),
        ("d.json", Form.JSON),
        ("e", None),
        ("", None),
    ],
)
def test_form_of(path: str, form: Form | None) -> None:
    assert form_of(path) is form


def test_an_empty_chat(store: Store) -> None:
    session = store.session(store.create_session().result())
    assert "replies: []\n---\n\n# Chat\n" in to_markdown(session, [])
    assert json.loads(to_json(session, []))["messages"] == []
    assert "<h1" in export_text(store, session.id, Form.HTML, whole=True)


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


def test_what_is_not_sent_is_marked(store: Store) -> None:
    session, branch = chat(store, ("Because.", Status.DONE), ("Well", Status.STOPPED))
    store.set_sent(session.id, {branch[2].id: False}).result()
    text = export_text(store, session.id, Form.MARKDOWN, whole=False)
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## System",
        "## User",
        "## Assistant",
        "## User (not sent)",
        "## Assistant (stopped, not sent)",
    ]
    page = export_text(store, session.id, Form.HTML, whole=True)
    assert "<b>User (not sent)</b>" in page
    records = json.loads(export_text(store, session.id, Form.JSON, whole=True))["messages"]
    assert [record["sent"] for record in records] == [True, True, False, True]
