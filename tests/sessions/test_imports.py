from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strata_tui.engine.counters import ReplyStats
from strata_tui.errors import UserError
from strata_tui.sessions.export import Form, export_text
from strata_tui.sessions.imports import Import, read_file, take_in
from strata_tui.sessions.imports.nodes import Node, build
from strata_tui.sessions.portable import PortableChat, PortableMessage
from strata_tui.sessions.rows import Role, Status
from strata_tui.sessions.store import Store

Tree = list[tuple[int | None, str, str]]


def tree(chat: PortableChat) -> Tree:
    """Parent, role and text of each message."""
    return [(m.parent, m.role.value, m.text) for m in chat.messages]


def written(folder: Path, value: object, name: str = "file.json") -> Path:
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


# ChatGPT


def gpt_node(key: str, parent: str | None, role: str = "", *parts: object, **more: Any) -> dict[str, Any]:
    """A node of ChatGPT's tree; `more`: content (whole), time, recipient, metadata."""
    node: dict[str, Any] = {"id": key, "parent": parent, "children": [], "message": None}
    if role:
        node["message"] = {
            "id": key,
            "author": {"role": role, "name": None, "metadata": {}},
            "create_time": more.get("time"),
            "update_time": None,
            "content": more.get("content", {"content_type": "text", "parts": list(parts)}),
            "status": "finished_successfully",
            "weight": 1.0,
            "metadata": more.get("metadata", {}),
            "recipient": more.get("recipient", "all"),
        }
    return node


def gpt(*nodes: dict[str, Any], current: str | None, **more: object) -> dict[str, Any]:
    return {
        "title": "A talk",
        "create_time": 1_700_000_000.5,
        "update_time": 1_700_000_900.0,
        "mapping": {node["id"]: node for node in nodes},
        "current_node": current,
        "conversation_id": "c",
    } | more


def one(folder: Path, value: object) -> PortableChat:
    [chat] = read_file(written(folder, value)).chats
    return chat


BRANCHED = gpt(
    gpt_node("root", None),
    gpt_node("sys", "root", "system", "", metadata={"is_visually_hidden_from_conversation": True}),
    gpt_node("u1", "sys", "user", "hello", time=1_700_000_001.0),
    gpt_node("a1", "u1", "assistant", "hi", time=1_700_000_002.0, metadata={"model_slug": "gpt-4"}),
    gpt_node("u2", "a1", "user", "more", time=1_700_000_003.0),
    gpt_node("a2", "u2", "assistant", "well", time=1_700_000_004.0, metadata={"model_slug": "gpt-4o"}),
    gpt_node("a1b", "u1", "assistant", "hi again", time=1_700_000_005.0),
    current="a2",
)


def test_chatgpt_branches(tmp_path: Path) -> None:
    chat = one(tmp_path, [BRANCHED])
    assert tree(chat) == [
        (None, "user", "hello"),
        (0, "assistant", "hi"),
        (1, "user", "more"),
        (2, "assistant", "well"),
        (0, "assistant", "hi again"),
    ]
    assert (chat.title, chat.leaf, chat.system, chat.model) == ("A talk", 3, "", "gpt-4o")
    assert (chat.created, chat.updated) == (1_700_000_000.5, 1_700_000_900.0)
    assert [m.created for m in chat.messages] == [1_700_000_000.0 + n for n in range(1, 6)]
    assert [m.model for m in chat.messages] == ["", "gpt-4", "", "gpt-4o", ""]


def test_chatgpt_tools_and_thoughts(tmp_path: Path) -> None:
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "Look", "content": "at it"}, {"summary": "Done"}]}
    found = read_file(
        written(
            tmp_path,
            [
                gpt(
                    gpt_node("r", None),
                    gpt_node("u", "r", "user", "run it"),
                    gpt_node("x", "u", "assistant", "Let me see.", time=5.0),
                    gpt_node("t", "x", "assistant", content=thoughts),
                    gpt_node(
                        "c", "t", "assistant", content={"content_type": "code", "text": "1+1"}, recipient="python"
                    ),
                    gpt_node("o", "c", "tool", content={"content_type": "execution_output", "text": "2"}),
                    gpt_node("p", "o", "assistant", content={"content_type": "reasoning_recap", "content": "8 s"}),
                    gpt_node("a", "p", "assistant", "It is 2.\ue200cite\ue202turn0\ue201", time=9.0),
                    gpt_node("u2", "a", "user", "thanks"),
                    current="u2",
                )
            ],
        )
    )
    [chat] = found.chats
    assert tree(chat) == [(None, "user", "run it"), (0, "assistant", "Let me see.\n\nIt is 2."), (1, "user", "thanks")]
    assert chat.messages[1].thinking == "Look\nat it\n\nDone"
    assert chat.leaf == 2
    assert found.left_out == {"tool message": 2}


def test_chatgpt_other_content(tmp_path: Path) -> None:
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file://x"}
    spoken = {"content_type": "audio_transcription", "text": "said aloud"}
    canvas = json.dumps({"name": "Plan", "type": "code/python", "content": "print('```')"})
    found = read_file(
        written(
            tmp_path,
            gpt(  # a single conversation, not in a list
                gpt_node("s", None, "system", "Be kind."),
                gpt_node("s2", "s", "system", "And brief."),
                gpt_node("h", "s2", "user", content={"content_type": "user_editable_context", "user_profile": "me"}),
                gpt_node(
                    "u", "h", "user", image, "look", spoken, metadata={"attachments": [{"name": "a.pdf"}, {"id": 1}]}
                ),
                gpt_node("a", "u", "assistant", canvas, recipient="canmore.create_textdoc"),
                gpt_node("b", "a", "assistant", content={"content_type": "code", "language": "sh", "text": "ls"}),
                current="nowhere",
            ),
        )
    )
    [chat] = found.chats
    assert chat.system == "Be kind."
    assert chat.messages[0].text == "[image]\n\nlook\n\nsaid aloud\n\n[file: a.pdf]"
    assert chat.messages[1].text == "**Plan**\n\n````python\nprint('```')\n````\n\n```sh\nls\n```"
    assert chat.leaf == 1  # unknown, so the newest
    assert found.left_out == {"system message": 1, "hidden message": 1, "picture or file": 2}


def test_chatgpt_zip(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations-000.json", json.dumps([BRANCHED]))
        archive.writestr("conversations-001.json", json.dumps([BRANCHED | {"title": "Second"}, gpt(current=None)]))
        archive.writestr("user.json", json.dumps({"id": "user-1"}))
        archive.writestr("shared_conversations.json", json.dumps([{"id": "x", "title": "y"}]))
        archive.writestr("chat.html", "<html>")
    found = read_file(path)
    assert (found.programs, [chat.title for chat in found.chats]) == (["ChatGPT"], ["A talk", "Second"])
    assert found.left_out == {"empty chat": 1}


# llama.cpp's web interface


def web_message(key: str, parent: str | None, role: str, content: str, at: int, **more: Any) -> dict[str, Any]:
    kind = "root" if parent is None else "text"
    base = {"id": key, "convId": "c", "type": kind, "timestamp": at, "role": role, "content": content, "children": []}
    return base | {"parent": parent} | more


WEB = {"id": "c", "name": "Web talk", "lastModified": 1_700_000_900_000, "currNode": "a1"}
WEB_MESSAGES = [
    web_message("r", None, "system", "", 1_700_000_000_000),
    web_message("s", "r", "system", "Be brief.", 1_700_000_000_000, type="system"),
    web_message("u", "s", "user", "hello", 1_700_000_001_000),
    web_message(
        "a1",
        "u",
        "assistant",
        "hi",
        1_700_000_002_000,
        model="qwen",
        reasoningContent="hm",
        timings={"cache_n": 5, "prompt_n": 7, "prompt_ms": 350.0, "predicted_n": 21, "predicted_ms": 2000.0},
    ),
    web_message("a2", "u", "assistant", "<think>\nolder way\n</think>\n\nhi again", 1_700_000_003_000),
]


def jsonl(conversation: dict[str, Any], messages: list[dict[str, Any]]) -> str:
    lines = [{"harness": "llama.app", "type": "session"} | conversation]
    lines += [{"type": "message", "message": message} for message in messages]
    return "\n".join(json.dumps(line) for line in lines)


def web_forms(folder: Path) -> dict[str, Path]:
    rows = {"conversations": [WEB], "messages": WEB_MESSAGES}
    database = {
        "formatName": "dexie",
        "formatVersion": 1,
        "data": {"databaseName": "LlamacppWebui", "data": [{"tableName": n, "rows": r} for n, r in rows.items()]},
    }
    packed = folder / "conversations.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("one.jsonl", jsonl(WEB, WEB_MESSAGES))
    return {
        "jsonl": written(folder, jsonl(WEB, WEB_MESSAGES), "named wrongly.txt"),
        "zip": packed,
        "json, one": written(folder, {"conv": WEB, "messages": WEB_MESSAGES}, "one.json"),
        "json, all": written(folder, [{"conv": WEB, "messages": WEB_MESSAGES}], "all.json"),
        "database": written(folder, database, "db.json"),
    }


@pytest.mark.parametrize("form", ["jsonl", "zip", "json, one", "json, all", "database"])
def test_web_ui_forms(tmp_path: Path, form: str) -> None:
    found = read_file(web_forms(tmp_path)[form])
    [chat] = found.chats
    assert (found.programs, found.left_out) == (["llama.cpp"], {})
    assert tree(chat) == [(None, "user", "hello"), (0, "assistant", "hi"), (0, "assistant", "hi again")]
    assert [m.thinking for m in chat.messages] == ["", "hm", "older way"]
    assert (chat.title, chat.system, chat.model, chat.leaf) == ("Web talk", "Be brief.", "qwen", 1)
    assert (chat.created, chat.updated) == (1_700_000_001.0, 1_700_000_900.0)
    assert chat.messages[1].stats is not None
    stats = ReplyStats.from_dict(dict(chat.messages[1].stats))
    assert (stats.prompt_tokens, stats.reused_tokens, stats.reply_tokens) == (12, 5, 21)
    assert (stats.prompt_rate, stats.decode_rate) == (20.0, 10.0)
    assert stats.first_token_seconds is None and stats.counters.decode.hit_rate is None


def test_web_ui_tools_and_attachments(tmp_path: Path) -> None:
    extra = [{"type": "TEXT", "name": "a.txt", "content": "inside"}, {"type": "IMAGE", "name": "b.png"}]
    call = "\n<<<AGENTIC_TOOL_CALL_START>>>\n<<<TOOL_NAME:x>>>\n<<<AGENTIC_TOOL_CALL_END>>>"
    messages = [
        web_message("u", "gone", "user", "read", 1, extra=extra),
        web_message("c", "u", "assistant", "", 2, toolCalls=[{"id": "1"}], reasoningContent="use it"),
        web_message("t", "c", "tool", "output", 3, toolCallId="1"),
        web_message(
            "a", "t", "assistant", f"<<<reasoning_content_start>>>and so<<<reasoning_content_end>>>ok{call}", 4
        ),
    ]
    found = read_file(written(tmp_path, jsonl(WEB | {"name": "", "pinned": True}, messages)))
    [chat] = found.chats
    text = "read\n\n--- a.txt ---\ninside\n\n[file: b.png]"
    assert tree(chat) == [(None, "user", text), (0, "assistant", "ok")]
    assert chat.messages[1].thinking == "use it\n\nand so"
    assert (chat.title, chat.pinned) == ("read", True)
    assert found.left_out == {"tool message": 2, "picture or file": 1}


# Our own JSON


def filled(store: Store) -> int:
    """A chat with everything a chat can have."""
    session = store.create_session(title="Whole", system="Be\x1b brief.", model="m").result()
    question = store.add_user_message(session, "q \x00 日本 \u2028 \x9b").result()
    for status in (Status.DONE, Status.STOPPED, Status.ERROR, Status.INTERRUPTED):
        reply = store.begin_reply(session, question, model="m", params={"seed": None, "top_p": 0.5}).result()
        stats = ReplyStats(prompt_tokens=3, decode_seconds=0.5, model="m")
        store.finish_reply(reply, status, f"text {status.value}", "thought", stats.to_dict(), "note")
    store.add_user_message(session, "next", reply)
    store.add_user_message(session, "another start", None)
    store.set_draft(session, "half a thought")
    store.set_pinned(session, True)
    store.set_options(session, {"temperature": 0.25})
    store.set_leaf(session, reply).result()
    store.set_sent(session, {question: False}).result()
    return session


@pytest.mark.parametrize("whole", [True, False])
def test_export_import_export_is_equal(store: Store, tmp_path: Path, whole: bool) -> None:
    filled(store)  # so that ids differ
    text = export_text(store, filled(store), Form.JSON, whole=whole)
    with Store(tmp_path / "other.sqlite3") as other:
        found = read_file(written(tmp_path, text))
        assert take_in(other, found) == (
            "file.json (strata-tui): 1 chat with 7 messages in 5 branches taken in."
            if whole
            else "file.json (strata-tui): 1 chat with 2 messages taken in."
        )
        [info] = other.list_sessions()
        assert export_text(other, info.id, Form.JSON, whole=True) == text
        assert [h.message is not None for h in other.search("interrupted")] == [True]


texts = st.text(st.characters(codec="utf-8"), max_size=20)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts, lambda v: st.dictionaries(texts, v), max_leaves=4
)


@st.composite
def chats(draw: st.DrawFn) -> PortableChat:
    times = st.floats(0, 1e10)
    messages: list[PortableMessage] = []
    for n in range(draw(st.integers(1, 8))):
        parent = draw(st.integers(-1, n - 1))
        stats = draw(st.none() | st.builds(ReplyStats, st.integers(0, 9), model=texts))
        messages.append(
            PortableMessage(
                None if parent < 0 else parent,
                draw(st.sampled_from(Role)),
                draw(texts),
                draw(times),
                draw(times),
                draw(texts),
                draw(st.sampled_from([s for s in Status if s is not Status.RUNNING])),
                draw(texts),
                draw(texts),
                draw(st.none() | st.dictionaries(texts, plain)),
                None if stats is None else json.loads(json.dumps(stats.to_dict())),
                draw(st.booleans()),
            )
        )
    leaf = draw(st.none() | st.integers(0, len(messages) - 1))
    rest = [draw(texts) for _ in range(3)]
    options = draw(st.dictionaries(texts, plain))
    return PortableChat(
        draw(texts), draw(times), draw(times), tuple(messages), leaf, *rest, draw(st.booleans()), options
    )


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chats())
def test_any_chat_survives_the_round_trip(store: Store, tmp_path: Path, chat: PortableChat) -> None:
    [key] = store.add_chats([chat]).result()
    if key is None:
        return  # drawn before
    text = export_text(store, key, Form.JSON, whole=True)
    [again] = read_file(written(tmp_path, text)).chats
    assert again == chat
    store.delete(key).result()


def test_version_one_is_read(store: Store, tmp_path: Path) -> None:
    message = {"id": 41, "session_id": 7, "parent_id": None, "role": "user", "text": "old", "thinking": "",
               "status": "done", "note": "", "model": "", "params": None, "stats": None, "owner_pid": None,
               "created": 1.0, "updated": 2.0}  # fmt: skip
    reply = message | {"id": 44, "parent_id": 41, "role": "assistant", "status": "running", "owner_pid": 9}
    session = {"id": 7, "title": "Old", "created": 1.0, "updated": 2.0, "draft": "", "system": "", "model": "m",
               "leaf": 44, "deleted_at": 3.0, "messages": 2}  # fmt: skip
    document = {"schema": "strata-tui chat", "schema_version": 1, "session": session, "messages": [message, reply]}
    chat = one(tmp_path, document)
    assert (chat.title, chat.leaf, tree(chat)) == ("Old", 1, [(None, "user", "old"), (0, "assistant", "old")])
    assert chat.messages[1].status is Status.INTERRUPTED
    take_in(store, read_file(tmp_path / "file.json"))
    assert [s.title for s in store.list_sessions()] == ["Old"]


# What may be wrong


def own(**changes: object) -> dict[str, Any]:
    message = {"id": 1, "parent_id": None, "role": "user", "text": "t", "status": "done", "created": 1, "updated": 1}
    session = {"title": "x", "created": 1, "updated": 1, "leaf": 1}
    document = {"schema": "strata-tui chat", "schema_version": 2, "session": session, "messages": [message]}
    if "message" in changes:
        document["messages"] = [message | changes.pop("message")]  # type: ignore[operator]
    if "session" in changes:
        document["session"] = session | changes.pop("session")  # type: ignore[operator]
    return document | changes


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "no JSON"),
        ("{", "no JSON: .* in line 1, column 2"),
        ("[" * 100_000, "nests too deeply"),
        ("{}", "holds no chats that can be read"),
        ("[]", "holds no chats that can be read"),
        ('"text"', "holds no chats that can be read"),
        ('[{"mapping": 5}, null, {"conv": {}, "messages": 5}]', "holds no chats that can be read"),
        ('{"type": "session", "id": "x"}\n{"type":', "line 2 is no JSON"),
        (own(schema_version=3), "newer strata-tui"),
        (own(schema_version="2"), "no schema_version"),
        (own(session={"leaf": 9}), "ends at message 9"),
        (own(session={"leaf": [1]}), "ends at message"),
        (own(session={"created": "today"}), "created is no time"),
        (own(messages=[{}]), "message 1 has no id"),
        (own(message={"parent_id": 1}), "message 1 follows message 1"),
        (own(message={"parent_id": {}}), "message 1 follows message"),
        (own(message={"role": "tool"}), "message 1: 'tool' is not a valid Role"),
        (own(message={"status": {}}), "message 1: .* is not a valid Status"),
        (own(message={"text": None}), "message 1 has no text"),
        (own(message={"updated": float("nan")}), "updated is no time"),
        (own(message={"stats": {"prompt_tokens": "many"}}), "its stats are no numbers"),
        (own(message={"stats": {"counters": {"prompt": {"picks": None}}}}), "its stats are no numbers"),
        (own(message={"stats": {"decode_seconds": "2"}}), "its stats are no numbers"),
        (own(message={"stats": {"layers": [[1, 2], [3]]}}), "layers are no pairs of numbers"),
        (own(message={"stats": {"layers": 4}}), "layers are no pairs of numbers"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_one_clear_sentence(tmp_path: Path, value: object, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        read_file(written(tmp_path, value))
    assert "file.json" in str(caught.value) and "\n" not in str(caught.value)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    for data, words in (
        (b"\xff\xfe{}", "not UTF-8"),
        (b"PK\x03\x04 no zip", "damaged zip"),
        (b"\xef\xbb\xbf[", "no JSON"),
    ):
        path.write_bytes(data)
        with pytest.raises(UserError, match=words):
            read_file(path)
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_file(tmp_path / "missing")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_file(tmp_path)


def test_a_damaged_zip(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([BRANCHED]))
    raw = bytearray(path.read_bytes())
    raw[60:90] = bytes(30)
    path.write_bytes(raw)
    with pytest.raises(UserError, match="damaged zip"):
        read_file(path)


def test_all_or_nothing_and_once(store: Store, tmp_path: Path) -> None:
    found = read_file(written(tmp_path, [BRANCHED, BRANCHED | {"title": "Second"}], "conversations.json"))
    assert take_in(store, found) == ("conversations.json (ChatGPT): 2 chats with 10 messages in 4 branches taken in.")
    found.left_out["tool message"] = 3
    assert take_in(store, found) == (
        "conversations.json (ChatGPT): 0 chats with 0 messages taken in, 2 here already; left out: 3 tool messages."
    )
    broken = Import(Path("x"), ["ChatGPT"], [found.chats[0], PortableChat("t", 1, 1, (), leaf=4)])
    for session in store.list_sessions():
        store.delete(session.id).result()
    with pytest.raises(IndexError):
        take_in(store, broken)
    assert store.list_sessions() == []


def test_any_time_and_any_value_is_survived(tmp_path: Path) -> None:
    odd: list[object] = [None, "x", -1, True, [], {}, 1e300, float("inf")]
    for value in odd:
        node = {"id": value, "parent": value, "message": {"author": value, "content": value, "create_time": value}}
        good = gpt_node("u", "odd", "user", "kept", time=value)
        chat = one(tmp_path, gpt({"id": "odd"} | node | {"id": "odd"}, good, current=None, create_time=value))
        assert tree(chat) == [(None, "user", "kept")]
        bad = {"id": value, "parent": value, "role": value, "content": value, "timestamp": value, "extra": [value]}
        messages = [bad, bad, web_message("u", "x", "user", "kept", 1)]
        chat = one(tmp_path, {"conv": {"id": value, "lastModified": value, "currNode": value}, "messages": messages})
        assert tree(chat) == [(None, "user", "kept")]


def said(key: str, parent: str | None, role: Role = Role.USER, created: float | None = None) -> Node:
    return Node(key, parent, PortableMessage(None, role, key, created or 0.0, 0.0), created=created)


def test_build_survives_circles_and_orphans() -> None:
    messages, leaf = build([said("a", "b"), said("b", "a"), said("c", "c"), said("d", "nowhere")], "b")
    assert sorted(m.text for m in messages) == ["a", "b", "c", "d"]
    assert all(m.parent is None or m.parent < n for n, m in enumerate(messages))
    assert leaf is not None and messages[leaf].text == "b"


def test_build_orders_by_time_and_keeps_parents_first() -> None:
    nodes = [said("late", "top", created=9.0), said("early", "top", created=1.0), said("top", None, created=5.0)]
    assert [m.text for m in build(nodes, None)[0]] == ["top", "early", "late"]


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from([*Role, None]), st.none() | st.integers(1, 9)), max_size=25)
)
def test_build_loses_nothing(spec: list[tuple[int, Role | None, int | None]]) -> None:
    nodes = []
    for key, (parent, role, at) in enumerate(spec):
        message = None if role is None else PortableMessage(None, role, f"<{key}>", 0.0, 0.0)
        nodes.append(Node(key, parent, message, created=None if at is None else float(at)))
    messages, leaf = build(nodes, len(spec) - 1)
    text = "".join(m.text for m in messages)
    for key, (_, role, _) in enumerate(spec):
        assert text.count(f"<{key}>") == (role is not None)
    assert all(m.parent is None or m.parent < n for n, m in enumerate(messages))
    assert leaf is None or 0 <= leaf < len(messages)
