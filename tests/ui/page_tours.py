"""Tours through the pages over the chat: each presses the keys of its actions."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

from ui.key_tour import Tour, appears, changes, key_line, lines, vanishes
from ui.key_tours import EDITED, open_chat


def pages(tour: Tour) -> None:
    """Pages over the chat, each left by escape."""
    for id, mark in (
        ("help", "Keys and commands"),
        ("options", "Options for this chat"),
        ("model", "Letters of a name"),
        ("search", "Search all chats"),
        ("log", "Engine log, from INFO"),
        ("palette", "Search for commands"),
        ("export", "Export this chat"),
    ):
        tour.every(id, appears(mark), after=tour.leave(mark))
    tour.every(
        "page_close",
        vanishes("Options for this chat"),
        before=lambda: tour.go("alt+o", to="Options for this chat"),
    )
    tour.terminal.until(lambda text: "enter send" in key_line(text))


def texts(tour: Tour) -> None:
    """What counts on pages of text."""
    terminal = tour.terminal
    begin, end = "Close what is on top", "keys of your own"

    def opened() -> None:
        if "Keys and commands" not in terminal.shown():
            tour.go("f1", to="Keys and commands")
            time.sleep(0.3)  # until nothing changes of itself

    def at_top() -> None:
        tour.go("home", to=begin)

    opened()
    for id in ("text_down", "text_up", "text_page_down", "text_page_up"):
        tour.every(id, changes)
    tour.every("text_end", appears(end), before=at_top)
    tour.every("text_top", appears(begin), before=lambda: tour.go("end", to=end))
    tour.every("text_close", vanishes("Keys and commands"), before=opened)


def lists(tour: Tour, folder: Path) -> None:
    """What counts in the lists of pages, on the form of an export, and on what was found."""
    terminal = tour.terminal
    tour.go("alt+x", to="Export this chat")
    tour.marks("list_down")
    tour.marks("list_up")
    tour.every("export_thinking", lambda was, now: ("without thinking" in was) != ("without thinking" in now))
    tour.every("export_write", appears("Written to "))
    assert list(folder.glob("*tensor*"))
    tour.leave("Written to ")()
    tour.go("ctrl+r", to="Search all chats")
    terminal.type("slots")
    terminal.until(lambda text: re.search(r"\d+ results", text))
    for id in ("search_down", "search_up", "search_page_down", "search_page_up"):
        tour.marks(id)
    tour.leave("Search all chats")()


def room(tour: Tour) -> None:
    """What makes room where a chat is larger than the context."""
    terminal = tour.terminal

    def room() -> None:
        tour.say("/room", to="A larger context")

    def leaving() -> None:
        if "They stay in the chat" not in terminal.shown():
            room()
            tour.go("3", to="They stay in the chat")

    open_chat(tour, "Tensor")
    tour.every("room_fork", appears("A new chat with what fits;"), before=room)
    tour.calm()
    open_chat(tour, "Tensor")
    tour.every("room_leave", appears("They stay in the chat"), before=room)
    tour.every("leaving_change", lambda was, now: now.count("not sent") != was.count("not sent"), before=leaving)
    terminal.press("escape")
    tour.calm()
    tour.every("leaving_done", vanishes("They stay in the chat"), before=leaving)
    tour.calm()
    tour.every("room_larger", lambda was, now: "768 ctx" not in lines(now)[0], before=room)
    terminal.until(lambda text: "ready" in text)


def models(tour: Tour, folder: Path) -> None:
    """What counts on the models."""
    terminal = tour.terminal
    terminal.press("alt+m")
    terminal.until(lambda text: re.search(r"\d models", text) and "looking" not in text)

    def moved(was: str, now: str) -> bool:
        return model_path(was) != model_path(now)

    tour.every("models_down", moved)
    tour.every("models_up", moved)
    tour.every("models_page_down", moved)
    tour.every("models_page_up", moved)
    shutil.copy(folder / "models" / "one.gguf", folder / "models" / "fifth.gguf")
    tour.every("models_again", appears("fifth"))
    terminal.press("escape")
    tour.calm()


def model_path(text: str) -> str:
    """The file whose details are shown."""
    return next(line for line in lines(text) if ".gguf" in line and "/" in line)


def options(tour: Tour) -> None:
    """What counts on the options, and while the system prompt is edited."""
    terminal = tour.terminal
    tour.go("alt+o", to="Options for this chat")

    def other_scope(was: str, now: str) -> bool:
        return scope(was) != scope(now)

    tour.every("options_next", other_scope)
    tour.every("options_previous", other_scope)
    terminal.until(lambda text: "Options for this chat" in text)

    def edited() -> None:
        tour.every("options_change", appears("System prompt for"))
        tour.every("edit_editor", appears(EDITED))
        tour.every("edit_keep", vanishes("System prompt for"))
        terminal.until(lambda text: EDITED in text)

    tour.every("options_take_back", vanishes(EDITED), before=edited)
    terminal.press("escape")
    tour.calm()


def scope(text: str) -> str:
    return next(line for line in lines(text) if "Options for" in line)


def log(tour: Tour) -> None:
    """What counts in the engine's log."""
    terminal = tour.terminal
    tour.go("f12", to="Engine log, from INFO")
    time.sleep(0.3)  # until nothing changes of itself

    def up() -> None:
        for _ in range(2):  # one by one: else what the second does would be taken for what the next key does
            was = terminal.steady()
            terminal.press("pageup")
            terminal.until(lambda now, was=was: was != now)

    tour.every("log_page_up", changes)
    tour.every("log_up", changes)
    tour.every("log_down", changes)
    tour.every("log_page_down", changes, before=up)
    tour.every("log_end", changes, before=up)
    tour.every("log_copy", appears(" lines: in tmux's buffer"))
    tour.every("log_level", lambda was, now: level(was) != level(now))
    terminal.press("escape")
    tour.calm()


def level(text: str) -> str:
    return next(line for line in lines(text) if "Engine log, from" in line)
