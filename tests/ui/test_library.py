"""Finding, pinning, forking, deleting, exporting and importing chats on the screen."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from textual.widgets import Input, OptionList

from strata_tui.sessions.export import Form
from strata_tui.sessions.portable import PortableChat, PortableMessage
from strata_tui.sessions.rows import Role
from strata_tui.sessions.search import Hit
from strata_tui.ui.export import Wish, parse_wish
from strata_tui.ui.screens.bin import BinScreen
from strata_tui.ui.screens.export import ExportScreen
from strata_tui.ui.screens.search import SearchScreen, around, hit_text, news_of
from strata_tui.ui.widgets.chats_panel import ChatFilter, ChatList

from .stored_chats import fill, line, without_model

if TYPE_CHECKING:
    from tests.ui.conftest import Running, Start

DAY = 86400.0


def branched(title: str) -> PortableChat:
    """60 messages that are shown, and beside the second one another reply, about a zebra."""
    chat = line(title, *(f"message number{n}" for n in range(60)))
    other = PortableMessage(0, Role.ASSISTANT, "Beside it: a zebra.", chat.created, chat.created)
    return PortableChat(title, chat.created, chat.updated, (*chat.messages, other), 59)


def options(screen: object) -> list[str]:
    """The list's lines, without what only marks and aligns."""
    assert isinstance(screen, OptionList)
    return [" ".join(str(screen.get_option_at_index(n).prompt).split()) for n in range(screen.option_count)]


async def search(run: Running, words: str) -> SearchScreen:
    """Types into the search screen, and waits for what is found."""
    await run.until(lambda: isinstance(run.app.screen, SearchScreen))
    screen = run.app.screen
    assert isinstance(screen, SearchScreen)
    screen.query_one(Input).value = words
    await run.until(lambda: screen._found == words)
    return screen


async def test_a_search_goes_to_the_message_in_its_branch(start: Start) -> None:
    async with without_model(start) as run:
        session, _ = fill(run, branched("Long"), line("Other", "nothing of interest"))
        await run.pilot.press("ctrl+r")
        screen = await search(run, "zeb")
        assert "1 result" in run.shown() and "Beside it: a zebra." in run.shown()
        assert len(screen._hits) == 1
        await run.pilot.press("enter")
        await run.until(lambda: run.screen.chat.session == session)
        await run.until(lambda: run.screen.transcript.query(".-found"))
        assert [t.text for t in run.screen.chat.turns] == ["message number0", "Beside it: a zebra."]
        assert run.store.branch(session)[-1].text == "Beside it: a zebra."
        assert "Beside it: a zebra." in run.shown()
        assert run.screen.focused is run.prompt


async def test_a_search_goes_to_a_message_far_up(start: Start) -> None:
    async with without_model(start, size=(80, 24)) as run:
        [session] = fill(run, branched("Long"))
        await run.screen.commands.open_session(session)
        await run.until(lambda: "number59" in run.shown())
        await run.say("/search number3")
        screen = await search(run, "number3")
        assert [hit.snippet[-1] for hit in screen._hits][0] == ("number3", True)  # whole words come first
        await run.pilot.press("down", "up", "enter")
        await run.until(lambda: re.search(r"number3\b", run.shown()))
        await run.until(lambda: "number59" not in run.shown())
        assert len(run.screen.chat.turns) == 60  # the same branch
        view = run.screen.transcript.view_of(run.screen.chat.turns[3])
        assert view is not None and view.region.y == run.screen.transcript.region.y
        await run.pilot.press("ctrl+end")
        await run.until(lambda: "number59" in run.shown())


async def test_letters_move_through_a_chat(start: Start) -> None:
    async with without_model(start, size=(80, 24)) as run:
        [session] = fill(run, branched("Long"))
        await run.screen.commands.open_session(session)
        await run.until(lambda: "number59" in run.shown())
        turns, transcript = run.screen.chat.turns, run.screen.transcript
        await run.pilot.press("alt+up")
        for keys, place in (("g", 0), ("j", 1), ("jj", 3), ("k", 2), ("G", 59), ("kk", 57)):
            await run.pilot.press(*keys)
            await run.until(lambda place=place: transcript.selected is turns[place])
        await run.pilot.press("i", "j")
        assert run.prompt.has_focus and run.prompt.text == "j"


async def test_searching_by_keys_and_what_is_said(start: Start) -> None:
    async with without_model(start, size=(60, 16)) as run:
        fill(run, line("Ducks", "a duck", "yes"), *(line(f"Many {n}", f"many things {n}") for n in range(60)))
        await run.pilot.press("f2")
        await run.until(lambda: isinstance(run.screen.focused, ChatList))
        await run.pilot.press("slash")
        screen = await search(run, "duck")
        assert [hit.message is None for hit in screen._hits] == [True, False]
        assert "chat" in run.shown() and "you" in run.shown() and "2 results" in run.shown()
        await search(run, "many")
        assert "The best 50; more words narrow it down." in run.shown()
        await run.pilot.press("pagedown", "down")
        assert (screen.query_one(OptionList).highlighted or 0) > 1
        await search(run, "goose")
        assert "Nothing has all of these words." in run.shown()
        await run.pilot.press("enter")
        assert run.app.screen is screen
        await search(run, "w " * 40)
        assert "32 words at most" in run.shown()
        await search(run, "??")
        assert "Beginnings of words count" in run.shown()
        await search(run, "duck yes")
        await run.pilot.press("escape")
        await run.until(lambda: run.app.screen is run.screen)
        await run.pilot.press("escape", "ctrl+r")
        await run.until(lambda: isinstance(run.app.screen, SearchScreen))
        assert run.app.screen.query_one(Input).value == "duck yes"  # there again


async def test_enter_before_the_search_has_begun(start: Start) -> None:
    async with without_model(start) as run:
        session, _ = fill(run, line("Ducks", "quack"), line("Geese", "honk"))
        await run.pilot.press("ctrl+r")
        await run.until(lambda: isinstance(run.app.screen, SearchScreen))
        run.app.screen.query_one(Input).value = "quack"
        await run.pilot.press("enter")
        await run.until(lambda: run.screen.chat.session == session)


async def test_a_hit_that_is_gone_is_told(start: Start) -> None:
    async with without_model(start) as run:
        [session] = fill(run, line("Ducks", "quack"))
        await run.pilot.press("ctrl+r")
        await search(run, "quack")
        run.store.delete(session).result()
        await run.pilot.press("enter")
        await run.until(lambda: "was deleted" in run.screen.flash.text)
        assert run.screen.chat.session is None


def test_the_words_around_a_match() -> None:
    lead = ("the quick brown fox jumps over the lazy ", False)
    cut = around([lead, ("dog", True), (" and on", False)], 30)
    assert cut == [("…lazy ", False), ("dog", True), (" and on", False)]
    assert around([("a ", False), ("dog", True)], 30) == [("a ", False), ("dog", True)]
    assert around([("dog", True), (" x", False)], 30) == [("dog", True), (" x", False)]
    assert around([("日本語" * 20, False), ("語", True)], 30)[0] == ("…語日本語", False)  # 9 cells of 10
    hit = Hit(1, "a\x1b[31mb", 2, Role.USER, 0.0, (("x", True),))
    assert "\x1b" not in hit_text(hit, 40).plain
    assert [news_of(n) for n in (0, 1, 2, 50)] == [
        "Nothing has all of these words.",
        "1 result",
        "2 results",
        "The best 50; more words narrow it down.",
    ]


@pytest.mark.parametrize("size", [(80, 24), (170, 50)])
async def test_the_list_groups_filters_and_pins(start: Start, size: tuple[int, int]) -> None:
    async with without_model(start, size=size) as run:
        fill(
            run,
            line("Ancient", "x", age=40 * DAY),
            line("Trip to Kraków", "x", age=9 * DAY),
            line("Fresh", "x"),
            line("日本語", "x", age=DAY),
        )
        await run.pilot.press("f2")
        await run.until(lambda: isinstance(run.screen.focused, ChatList))
        chats = run.screen.query_one(ChatList)
        await run.until(lambda: len(options(chats)) == 7)
        facts = size[0] < 160  # over the chat there is room for them
        assert [o.split(" 1 message")[0] for o in options(chats)] == [
            "Today", "Fresh", "Yesterday", "日本語", "Older", "Trip to Kraków", "Ancient"]  # fmt: skip
        assert (" 1 message " in options(chats)[1]) == facts
        assert "日本語" in run.shown()  # nothing below the panel cuts it
        await run.pilot.press("f")
        await run.until(lambda: isinstance(run.screen.focused, ChatFilter))
        await run.pilot.press(*"krakow")
        await run.until(lambda: len(options(chats)) == 2)
        assert "Kraków" in run.shown() and "1 of 4" in run.shown()
        await run.pilot.press("enter")
        await run.until(lambda: isinstance(run.screen.focused, ChatList))
        await run.pilot.press("p")
        await run.until(lambda: options(chats)[0] == "Pinned")
        await run.pilot.press("f", "escape")
        await run.until(lambda: len(options(chats)) == 8)
        assert [o.split(" 1 message")[0] for o in options(chats)][:2] == ["Pinned", "Trip to Kraków"]
        assert run.screen.flash.text == "Kept on top: Trip to Kraków"
        await run.pilot.press("f", *"zzz")
        await run.until(lambda: "no title has these words" in run.shown())
        await run.pilot.press("escape", "p")
        await run.until(lambda: options(chats)[0] == "Today")


async def test_over_the_chat_the_list_closes_when_it_is_left(start: Start) -> None:
    async with without_model(start, size=(80, 24)) as run:
        fill(run, line("One", "x"))
        await run.pilot.press("f2")
        await run.until(lambda: isinstance(run.screen.focused, ChatList))
        run.prompt.focus()
        await run.until(lambda: not run.screen.chats.display)
        assert run.screen.focused is run.prompt


async def test_several_chats_are_deleted_from_the_list_in_a_row(start: Start) -> None:
    async with without_model(start, size=(80, 24)) as run:
        keys = fill(run, *(line(title, "x") for title in ("one", "two", "three")))
        await run.screen.commands.open_session(keys[2])
        await run.pilot.press("f2")
        chats = run.screen.query_one(ChatList)
        await run.until(lambda: chats.has_focus and chats.highlighted_option is not None)
        for left in (2, 1):
            await run.pilot.press("d")
            await run.until(lambda left=left: len(run.store.list_sessions()) == left)  # type: ignore[misc]
            await run.until(lambda left=left: len(options(chats)) == left + 1)  # type: ignore[misc]
        assert run.screen.focused is chats and run.screen.chats.display
        await run.pilot.press("n")
        await run.until(lambda: not run.screen.chats.display)
        assert run.screen.focused is run.prompt


async def test_pinning_and_forking_by_command(start: Start) -> None:
    async with without_model(start) as run:
        await run.say("/pinchat")
        assert "nothing to keep on top" in run.screen.flash.text
        await run.say("/fork")
        assert "nothing to fork" in run.screen.flash.text
        [session] = fill(run, line("One", "question", "answer"))
        await run.screen.commands.open_session(session)
        await run.say("/pinchat")
        await run.until(lambda: run.store.session(session).pinned)
        await run.say("/fork")
        await run.until(lambda: run.screen.chat.session not in (session, None))
        assert [t.text for t in run.screen.chat.turns] == ["question", "answer"]
        assert len(run.store.list_sessions()) == 2


# The bin


async def test_the_bin_brings_back_removes_and_empties(start: Start) -> None:
    async with without_model(start) as run:
        keys = fill(run, *(line(title, "x") for title in ("one", "two", "three", "four")))
        for key in keys[:3]:
            run.store.delete(key).result()
        await run.say("/bin")
        await run.until(lambda: isinstance(run.app.screen, BinScreen))
        chats = run.app.screen.query_one(OptionList)
        await run.until(lambda: chats.option_count == 3)
        assert options(chats)[0].startswith("29 days left three")
        await run.pilot.press("d")
        assert "Press d again" in run.shown() and len(run.store.list_sessions(deleted=True)) == 3
        await run.pilot.press("down", "d")  # another chat: asked again
        assert len(run.store.list_sessions(deleted=True)) == 3
        await run.pilot.press("d")
        await run.until(lambda: chats.option_count == 2)
        assert [s.title for s in run.store.list_sessions(deleted=True)] == ["three", "one"]
        await run.pilot.press("up", "enter")
        await run.until(lambda: run.screen.chat.title == "three")
        assert run.app.screen is run.screen and "Brought back: three" in run.screen.flash.text
        await run.say("/bin")
        await run.until(lambda: isinstance(run.app.screen, BinScreen))
        await run.until(lambda: run.app.screen.query_one(OptionList).option_count == 1)
        await run.pilot.press("e", "e")
        await run.until(lambda: "No deleted chats." in run.shown())
        assert {s.title for s in run.store.list_sessions()} == {"three", "four"}
        await run.pilot.press("escape")
        await run.say("/undo")
        await run.until(lambda: "No chat was deleted." in run.screen.flash.text)


# Files


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("", Wish()),
        ("md", Wish(Form.MARKDOWN)),
        ("html tree", Wish(Form.HTML, True)),
        ("tree html /x y", Wish(Form.HTML, True, "/x y")),
        ("json", Wish(Form.JSON, True)),
        ("json branch ~/a", Wish(Form.JSON, False, "~/a")),
        ("chat.html", Wish(Form.HTML, False, "chat.html")),
        ("md chat.html", Wish(Form.MARKDOWN, False, "chat.html")),
        ("tree", Wish(whole=True)),
        ("md md", Wish(path="md")),
    ],
)
def test_what_an_export_command_asks_for(text: str, wish: Wish) -> None:
    assert parse_wish(text) == wish


async def test_exports_by_command_and_by_choice(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with without_model(start) as run:
        [session] = fill(run, branched("Long one"))
        await run.screen.commands.open_session(session)
        await run.say(f"/export html tree {tmp_path / 'all.html'}")
        await run.until(lambda: (tmp_path / "all.html").exists())
        assert "zebra" in (tmp_path / "all.html").read_text()
        await run.say("/export json")
        target = tmp_path / f"chat-{session}-long-one.json"
        await run.until(lambda: target.exists())
        assert len(json.loads(target.read_text())["messages"]) == 61
        await run.pilot.press("alt+x")
        await run.until(lambda: isinstance(run.app.screen, ExportScreen))
        assert "all 2 branches" in run.shown() and "without thinking, to" in run.shown()
        await run.pilot.press("down", "t")
        assert "with thinking, to" in run.shown()
        await run.pilot.press("enter")
        await run.until(lambda: "Written to" in run.screen.flash.text)
        text = (tmp_path / f"chat-{session}-long-one.md").read_text()
        assert "zebra" in text and "# Branch 2, from message 1" in text
        await run.pilot.press("alt+x")
        await run.until(lambda: isinstance(run.app.screen, ExportScreen))
        await run.pilot.press("escape")
        await run.until(lambda: run.app.screen is run.screen)
        await run.say("/export md no/such/folder.md")
        await run.until(lambda: "cannot be written" in run.screen.flash.text)


async def test_an_import_is_told_and_listed(start: Start, tmp_path: Path) -> None:
    async with without_model(start, size=(170, 40)) as run:
        [session] = fill(run, line("Traveller", "question", "answer"))
        await run.screen.commands.open_session(session)
        await run.say("/rename Traveller two")
        await run.say(f"/export json {tmp_path / 'x.json'}")
        await run.until(lambda: (tmp_path / "x.json").exists())
        await run.say(f"/import {tmp_path / 'x.json'}")
        await run.until(lambda: "1 chat with 2 messages taken in" in run.screen.flash.text)
        await run.until(lambda: [o[-3:] for o in options(run.screen.query_one(ChatList))].count("two") == 2)
        await run.say(f"/import {tmp_path / 'x.json'}")
        await run.until(lambda: "1 here already" in run.screen.flash.text)
        await run.say("/import")
        assert "Name the file" in run.screen.flash.text
        await run.say(f"/import {tmp_path / 'y.json'}")
        await run.until(lambda: "y.json cannot be read" in run.screen.flash.text)
