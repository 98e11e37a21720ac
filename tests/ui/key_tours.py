"""Tours through the areas of the program: each presses the keys of its actions."""

from __future__ import annotations

import re
import time
from pathlib import Path

from ui.key_tour import Tour, appears, body, key_line, keys_become, lines, moves, vanishes

FIRST, LAST = "Why does the second run", "with a quarter"  # of the first and the last message
EDITED = "from the editor"


def chat(tour: Tour, folder: Path) -> None:
    """What counts everywhere in the chat."""
    terminal = tour.terminal

    def top() -> None:
        tour.messages("home", to="▸ Thought")
        tour.calm()

    tour.every("chats", appears("f: filter by title"), after=tour.leave("f: filter by title"))
    tour.every("engine", lambda was, now: ("Expert cache" in was) != ("Expert cache" in now))
    tour.every("focus_next", lambda was, now: "enter send" not in key_line(now), after=tour.calm)
    tour.every("page_up", moves)
    tour.every("page_down", moves)
    tour.every("follow", appears(LAST), before=top)
    tour.every("messages", keys_become("y copy"), after=tour.calm)
    tour.every("think", appears("▾ Thought"), before=top)
    tour.go("alt+t", to="▸ Thought")
    tour.go("ctrl+end", to=LAST)
    for id, news in (
        ("pin", "Pinning: on asked for"),
        ("stager", "Stager: ram asked for"),
        ("residency", "Residency: adaptive asked for"),
        ("draft", "Drafts: off asked for"),
    ):
        tour.every(id, appears(news), after=tour.leave(news))
    tour.every("copy", appears("tmux's buffer"), after=tour.leave("tmux's buffer"))
    assert terminal.buffer().startswith("Each halving of the slots") and terminal.buffer().endswith("a quarter.")
    tour.every("editor", appears(EDITED))
    tour.every("interrupt", appears("Cleared"), after=tour.leave("Cleared"))
    unknown = "has no variable for thinking"  # the demo model does not think
    tour.every("thinking", appears(unknown), after=tour.leave(unknown))
    time.sleep(0.3)  # what is drawn of itself would go over it
    terminal.scribble("SCRIBBLE")
    terminal.until(lambda text: "SCRIBBLE" in text)
    tour.every("redraw", vanishes("SCRIBBLE"))
    tour.every(
        "undelete",
        appears("Brought back: Tensor"),
        before=lambda: tour.say("/delete", to="Deleted: Tensor"),
        after=tour.leave("Brought back"),
    )
    tour.every("new", appears("New chat"), after=lambda: open_chat(tour, "Tensor"))


def open_chat(tour: Tour, title: str) -> None:
    """Opens a chat by the beginning of its title, and is in the prompt then."""
    tour.go("f2", to="enter open")
    tour.terminal.press("f")
    tour.terminal.until(lambda text: "enter open" not in key_line(text))
    tour.terminal.type(title)
    tour.terminal.until(lambda text: re.search(r" \d+ of \d+ chats? [━─]", text))  # on the list's border
    tour.go("enter", to="enter open")
    tour.go("enter", to=f"strata  {title}")
    tour.terminal.until(lambda text: "enter send" in key_line(text))


def prompt(tour: Tour) -> None:
    """What counts while one writes."""
    terminal = tour.terminal

    def two_lines(_: str, now: str) -> bool:
        typed = [line.strip(" ┃│") for line in lines(now)]
        return "onetwo" not in typed and "one" in typed and "two" not in typed

    def write() -> None:
        terminal.type("one")
        terminal.until(lambda text: any(line.strip(" ┃│") == "one" for line in lines(text)))

    def more() -> None:
        terminal.type("two")
        terminal.until(lambda text: {"one", "two"} <= {line.strip(" ┃│") for line in lines(text)})
        tour.go("ctrl+c", to="Cleared")
        tour.leave("Cleared")()

    tour.every("new_line", two_lines, before=write, after=more)
    newest = "Tell me a long story."
    tour.go("ctrl+n", to="strata  New chat")
    tour.every(
        "send",
        lambda was, now: any(line.startswith("▌ " + newest) for line in lines(now)),
        before=lambda: (terminal.type(newest), terminal.until(lambda text: f"┃ {newest}" in text)),
    )
    terminal.until(lambda text: "■ generating" in text)
    tour.every("stop", lambda was, now: "■ stopped" in now)
    tour.calm()
    tour.every("history_older", appears(f"┃ {newest}"))
    tour.every("history_newer", vanishes(f"┃ {newest}"))


def attachments(tour: Tour, folder: Path) -> None:
    """What counts on the attachments."""
    terminal = tour.terminal
    for name in ("first", "second"):
        (folder / f"{name}.txt").write_text(f"the {name} text\n")

    def attach(*names: str) -> None:
        for name in names:
            tour.say(f"/attach {folder}/{name}.txt", to=f"{name}.txt, 1 line]")
        terminal.press("shift+tab")
        terminal.until(lambda text: "enter open" in key_line(text))

    def chosen() -> str:
        return next((text for text in terminal.bold() if ".txt, 1 line]" in text), "")

    def other(_: str, __: str) -> bool:
        now = chosen()
        fresh, seen[0] = bool(now) and now != seen[0], now or seen[0]
        return fresh

    def choose(name: str) -> None:
        if name not in chosen():
            terminal.press("left")
            terminal.until(lambda _: name in chosen())

    attach("first", "second")
    seen = [chosen()]
    assert "second.txt" in seen[0]
    tour.every("attachment_left", other)
    tour.every("attachment_right", other)

    def close() -> None:
        terminal.press("escape")
        terminal.until(lambda text: "esc closes" not in text)

    tour.every("attachment_open", appears("the second text"), before=lambda: choose("second"), after=close)
    tour.every("attachment_remove", lambda was, now: now.count("1 line]") == was.count("1 line]") - 1)
    terminal.until(lambda text: "enter send" in key_line(text))
    attach("first")
    tour.every("attachment_insert", appears("the first text"))
    terminal.press("escape")
    terminal.until(lambda text: "enter send" in key_line(text))
    tour.go("ctrl+c", to="Cleared")
    tour.leave("Cleared")()


def transcript(tour: Tour) -> None:
    """What counts on the messages."""
    terminal = tour.terminal

    def select_last() -> None:
        tour.messages("end", to=LAST)

    def select_first() -> None:
        tour.messages("home", to=FIRST)

    def select_second() -> None:
        select_first()
        terminal.press("down")
        terminal.until(lambda text: any(line.startswith("█ Qwen3") and "2 of 3" in line for line in lines(text)))

    open_chat(tour, "Tensor")
    select_last()
    tour.every("message_up", moves)
    tour.every("message_down", moves)
    tour.every("top", appears(FIRST), before=select_last)
    tour.every("follow_here", appears(LAST), before=select_first)
    tour.every("prompt", keys_become("enter send"))
    select_first()
    tour.every("copy_here", appears("The message: "), after=tour.leave("The message: "))
    assert terminal.buffer().startswith(FIRST)
    tour.every("code_here", appears("Copy which code block?"), before=select_second)
    terminal.press("escape")
    tour.every("fold_here", lambda was, now: ("▾" in was) != ("▾" in now), before=select_second)
    select_second()
    tour.go("[", to="‹ 1 of 3 ›")
    tour.every("branch_next", another)
    tour.every("branch_previous", another)
    terminal.press("]")  # the one with most messages
    terminal.until(lambda text: "‹ 1 of 3 ›" not in text)
    select_first()
    tour.every("search_here", appears("Search all chats"))
    terminal.press("escape")
    select_first()
    tour.every("leave_out_here", appears("Not sent from now on"), after=tour.leave("Not sent from now on"))
    select_first()
    tour.go("x", to="Sent again")
    tour.every("edit_here", appears("Edit ━"), after=tour.leave("Edit ━"))
    tour.calm()


def another(was: str, now: str) -> bool:
    """Another branch is shown, and no news that there is none."""
    return moves(was, now) and "This is the" not in now


def replies(tour: Tour) -> None:
    """What has the model write."""
    terminal = tour.terminal

    def stop() -> None:
        terminal.press("escape")
        terminal.until(lambda text: "ready" in text)
        tour.calm()

    def select_last() -> None:
        tour.messages("end", to=" tokens")

    tour.go("ctrl+end", to="■ stopped")
    tour.every("regenerate", appears("‹ 2 of 2 ›"), after=stop)
    tour.every("regenerate_here", appears("‹ 3 of 3 ›"), before=select_last, after=stop)
    tour.every("go_on_here", lambda was, now: foot(now) != foot(was), before=select_last, after=stop)
    tour.every("fork_here", appears("A copy of the chat"), before=select_last, after=tour.leave("A copy of the chat"))


def foot(text: str) -> str:
    """The numbers below the last reply."""
    return next((line for line in reversed(body(text)) if " tokens" in line), "")


def chats(tour: Tour) -> None:
    """What counts in the list of chats."""
    terminal = tour.terminal

    def listed() -> None:
        if "enter open" not in key_line(terminal.shown()):
            tour.go("f2", to="enter open")

    def prompted() -> None:
        terminal.until(lambda text: "enter send" in key_line(text))

    def page(id: str, mark: str) -> None:
        tour.every(id, appears(mark), before=listed)
        terminal.press("escape")
        terminal.until(lambda text: mark not in text)

    page("search_chats", "Search all chats")
    page("rename_chat", "Rename chat")
    page("bin_chats", "Deleted chats ━")
    listed()
    tour.marks("chats_down")
    tour.marks("chats_up")
    tour.every("filter_chats", lambda was, now: "enter open" not in key_line(now), before=listed)
    tour.go("escape", to="enter open")
    tour.every("pin_listed", appears("on top: "), before=listed)
    tour.every("delete_chat", lambda was, now: "Deleted: " in now and title_count(now) == title_count(was) - 1, listed)
    for id, again in (("bin_remove", "Press d again"), ("bin_empty", "Press e again")):
        tour.every(id, appears(again), before=lambda: deleted(tour), after=tour.away("Deleted chats ━"))
    tour.every("bin_close", vanishes("Deleted chats ━"), before=lambda: deleted(tour))
    tour.every(
        "bin_restore",
        lambda was, now: "Deleted chats ━" not in now and "Brought back: " in now,
        before=lambda: deleted(tour),
        after=prompted,
    )
    listed()
    tour.go("d", to="Deleted: ")
    for id, check in (
        ("undelete_chat", appears("Brought back: ")),
        ("new_chat", appears("strata  New chat")),
        ("open_chat", vanishes("strata  New chat")),
    ):
        tour.every(id, check, before=listed, after=prompted)


def deleted(tour: Tour) -> None:
    """Opens the page of the deleted chats, from the list or from the prompt."""
    if "enter open" not in key_line(tour.terminal.shown()):
        tour.go("f2", to="enter open")
    tour.go("b", to="Deleted chats ━")


def title_count(text: str) -> int:
    """How many chats there are, as the list's border says."""
    found = re.findall(r"━ (\d+) chats? ━", text)
    return int(found[-1]) if found else -1
