"""Parts without widgets, or of one widget."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta

from rich.pretty import pretty_repr

from strata_tui.engine.counters import ReplyStats
from strata_tui.engine.events import LoadProgress, Message, Notice, PromptProgress, TextDelta
from strata_tui.sessions.rows import MessageRow, Role, SessionInfo, Status
from strata_tui.ui.chat import Chat, Turn
from strata_tui.ui.joined import joined
from strata_tui.ui.panels import CHATS, ENGINE, Panels
from strata_tui.ui.widgets.chats_panel import group_of
from strata_tui.ui.widgets.load_bar import load_text
from strata_tui.ui.widgets.message_head import branch_text, clock, head_text
from strata_tui.ui.widgets.message_view import foot_text
from strata_tui.ui.widgets.queued_view import queued_text
from strata_tui.ui.widgets.thinking_view import last_lines, thinking_title
from strata_tui.ui.widgets.too_small import too_small_text


def test_runs_of_text_and_progress_become_one() -> None:
    events = [
        PromptProgress(1, 1, 9),
        PromptProgress(1, 9, 9),
        TextDelta(1, "a", thinking=True),
        TextDelta(1, "b"),
        TextDelta(1, "c"),
        Notice("n"),
        TextDelta(1, "d"),
        TextDelta(2, "e"),
        LoadProgress("x", 1, 2),
        LoadProgress("x", 2, 2),
    ]
    assert joined(events) == [
        PromptProgress(1, 9, 9),
        TextDelta(1, "a", thinking=True),
        TextDelta(1, "bc"),
        Notice("n"),
        TextDelta(1, "d"),
        TextDelta(2, "e"),
        LoadProgress("x", 2, 2),
    ]


def test_the_engine_gets_alternating_turns_without_thinking() -> None:
    chat = Chat(system="be brief")
    chat.turns = [
        Turn(Role.USER, "one", 0.0),
        Turn(Role.ASSISTANT, "", 0.0, status=Status.ERROR),
        Turn(Role.USER, "two", 0.0),
        Turn(Role.ASSISTANT, "half", 0.0, thinking="hm", status=Status.STOPPED),
        Turn(Role.USER, "three", 0.0),
    ]
    assert chat.messages() == [
        Message("system", "be brief"),
        Message("user", "one\n\ntwo"),
        Message("assistant", "half"),
        Message("user", "three"),
    ]
    assert chat.last_reply() is chat.turns[3]


def test_branches_of_a_chat() -> None:
    chat = Chat()
    one, two = (Turn(Role.USER, text, 0.0) for text in ("one", "two"))
    replies = [Turn(Role.ASSISTANT, text, 0.0) for text in "abc"]
    chat.add(one, chat.root)
    chat.add(replies[0], one)
    chat.add(two, replies[0])
    chat.add(replies[1], two)
    assert chat.turns == [one, replies[0], two, replies[1]] and chat.end is replies[1]
    shown = chat.turns
    chat.add(replies[2], two)
    assert chat.turns == [one, replies[0], two, replies[2]] and chat.turns is shown
    assert replies[1].siblings == replies[2].siblings == two.below
    other = chat.add_user("other", 1.0, 7, chat.root)
    assert chat.turns == [other] and one.siblings == [one, other] and chat.title == "other"
    chat.show(replies[1])
    chat.show(other)
    chat.show_through(one)
    assert chat.end is replies[1]  # the branch shown last, not the newest
    chat.show(chat.root)
    assert chat.turns == [] and chat.end is chat.root
    assert [m.text for m in chat.messages(replies[2])] == ["one", "a", "two", "c"]


def test_a_traceback_can_print_a_message_of_a_long_chat() -> None:
    chat = Chat()
    for number in range(300):
        chat.add(Turn(Role.USER, str(number), 0.0), chat.end)
        chat.add(Turn(Role.ASSISTANT, "other", 0.0), chat.turns[-2] if number else chat.root)
    assert len(pretty_repr({"turn": chat.turns[-1], "chat": chat}, max_length=10)) < 2000


def test_a_stored_chat_with_branches() -> None:
    def row(number: int, above: int | None, role: Role) -> MessageRow:
        return MessageRow(number, 5, above, role, str(number), "", Status.DONE, "", "", None, None, None, 0.0, 0.0)

    user, reply = Role.USER, Role.ASSISTANT
    rows = [row(3, 2, user), row(2, 1, reply), row(1, None, user), row(4, 1, reply), row(5, None, user)]
    info = SessionInfo(5, "t", 0.0, 0.0, "", "s", "", 2, None, 5)
    chat = Chat.of(info, rows)
    assert [t.ref for t in chat.turns] == [1, 2]
    assert [t.ref for t in chat.root.below] == [1, 5] and [t.ref for t in chat.turns[1].siblings] == [2, 4]
    assert [branch_text(t) for t in chat.turns] == ["‹ 1 of 2 ›"] * 2
    chat.show_through(chat.turns[0])
    assert [t.ref for t in chat.turns] == [1, 2, 3]


def test_panels_are_beside_where_there_is_room_and_over_where_not() -> None:
    changes: list[None] = []
    panels = Panels({ENGINE: True, CHATS: True}, lambda: changes.append(None))
    panels.resized(80)
    assert not panels.is_beside(ENGINE) and not panels.is_over(ENGINE)
    assert panels.toggle(ENGINE) is False and panels.is_over(ENGINE)
    assert panels.toggle(CHATS) is False and panels.is_over(CHATS) and not panels.is_over(ENGINE)
    assert panels.close_over() and not panels.close_over()
    panels.resized(120)
    assert panels.is_beside(ENGINE) and not panels.is_beside(CHATS)
    assert panels.toggle(ENGINE) is True and not panels.is_beside(ENGINE)
    panels.resized(160)
    assert panels.is_beside(CHATS) and not panels.is_beside(ENGINE)
    panels.resized(80)
    panels.toggle(ENGINE)
    panels.resized(100)  # what was over the chat is now beside it
    assert panels.is_beside(ENGINE) and not panels.close_over()
    assert len(changes) == 10


def test_days() -> None:
    now = time.mktime((2026, 3, 2, 12, 0, 0, 0, 0, -1))
    assert group_of(now - 3600, now) == "Today"
    assert group_of(now - 86400, now) == "Yesterday"
    assert group_of(now - 2 * 86400, now) == group_of(now - 100 * 86400, now) == "Older"


def test_load_text() -> None:
    shown = load_text(LoadProgress("reading the trunk", 1 << 30, 4 << 30), 80).plain
    assert "reading the trunk" in shown and "1.0 / 4.0 GiB" in shown and "25 %" in shown and "esc stops" in shown
    assert len(shown) <= 80
    slots = load_text(LoadProgress("filling slots", 1408, 5632, "slots"), 80).plain
    assert "1 408 / 5 632 slots" in slots and "25 %" in slots and len(slots) <= 80
    unknown = load_text(LoadProgress("opening", 0, 0), 80).plain  # how much there is, is not known yet
    assert "opening" in unknown and "esc stops" in unknown and "%" not in unknown


def test_what_waits_is_a_line_each_and_says_how_to_take_it_back() -> None:
    assert queued_text(["one"], 60).plain.split() == ["queued:", "one", *"esc takes it back".split()]
    text = queued_text(["first\nmore", "words " * 30, "third", "fourth"], 70).plain
    lines = text.split("\n")
    assert len(lines) == 3 and all(len(line) <= 70 for line in lines)
    assert lines[0] == " queued: first more" and lines[2].endswith("4 wait, esc takes the last back")


def test_heads_fit_their_width() -> None:
    turn = Turn(Role.ASSISTANT, "x", 0.0, model="a model with a very long name")
    assert len(head_text(turn, 24).plain) == 24 and "…" in head_text(turn, 24).plain
    chat = Chat()
    for _ in range(3):
        chat.add(Turn(Role.USER, "x", 0.0), chat.root)
    text = head_text(chat.turns[0], 40).plain
    assert len(text) == 40 and text.startswith("You  ") and "‹ 3 of 3 ›  " in text


def test_thinking_titles() -> None:
    assert thinking_title(True, False, None, 0) == "▾ Thinking"
    assert thinking_title(True, False, 1.5, 12) == "▾ Thinking  1.50 s, 12 tokens"
    assert thinking_title(False, False, 6.1, 412) == "▸ Thought for 6.10 s, 412 tokens"
    assert thinking_title(False, True, None, 1) == "▾ Thought  1 token"


def test_the_last_lines_of_thinking_are_wrapped_and_clean() -> None:
    text = "".join(f"line {n} \x1b[31m{'x' * 30}\n" for n in range(400))
    lines = last_lines(text, 20).plain.split("\n")
    assert len(lines) == 6 and all(len(line) <= 20 for line in lines)
    assert "".join(lines).endswith("line 399" + "x" * 30) and "\x1b" not in "".join(lines)
    assert last_lines("", 20).plain == ""


def test_the_needed_and_the_actual_size() -> None:
    assert "needed 60 x 16" in too_small_text(50, 12)
    assert "now 50 x 12" in too_small_text(50, 12)


def test_a_reply_that_did_not_simply_end_says_so() -> None:
    assert foot_text(Turn(Role.ASSISTANT, "x", 0.0)) == ""
    assert "stopped" in foot_text(Turn(Role.ASSISTANT, "x", 0.0, status=Status.STOPPED))
    assert "no memory" in foot_text(Turn(Role.ASSISTANT, "", 0.0, status=Status.ERROR, note="no memory"))
    full = "The context of 512 tokens is full."
    assert full in foot_text(Turn(Role.ASSISTANT, "x", 0.0, status=Status.DONE, note=full))
    assert "interrupted" in foot_text(Turn(Role.ASSISTANT, "x", 0.0, status=Status.INTERRUPTED))
    assert foot_text(Turn(Role.USER, "x", 0.0)) == ""
    stats = ReplyStats(prompt_tokens=2199, reused_tokens=2182, reply_tokens=8, first_token_seconds=0.5)
    told = foot_text(Turn(Role.ASSISTANT, "x", 0.0, stats=stats))
    assert told == "8 tokens  –  first 0.50 s  hit –  read 17 of 2 199"
    assert foot_text(Turn(Role.ASSISTANT, "x", 0.0, stats=replace(stats, read_again=3))) == told + ", 3 again"


def test_a_head_tells_the_day_of_a_message_that_is_not_of_today() -> None:
    now = datetime.now()
    assert clock(now.timestamp()) == f"{now:%H:%M}"
    before = now - timedelta(days=1)
    day = "%d %b" if before.year == now.year else "%d %b %Y"
    assert clock(before.timestamp()) == f"{before:{day} %H:%M}"
    assert clock(datetime(1999, 12, 31, 13, 55).timestamp()) == "31 Dec 1999 13:55"
