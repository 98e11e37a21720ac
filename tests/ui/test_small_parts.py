"""Parts without widgets, or of one widget."""

from __future__ import annotations

import time

from strata_tui.engine.events import LoadProgress, Message, Notice, PromptProgress, TextDelta
from strata_tui.sessions.rows import Role, Status
from strata_tui.ui.chat import Chat, Turn
from strata_tui.ui.joined import joined
from strata_tui.ui.panels import CHATS, ENGINE, Panels
from strata_tui.ui.widgets.chats_panel import group_of
from strata_tui.ui.widgets.load_bar import load_text
from strata_tui.ui.widgets.message_view import foot_text
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
