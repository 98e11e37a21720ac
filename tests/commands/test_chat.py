"""`strata-tui chat`: what keeps it from starting."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata_tui.sessions.store import Store

from .command_line import in_terminal


@pytest.mark.parametrize(
    ("size", "change", "words", "part"),
    [
        ((39, 24), {}, [], "it has 39 columns and 24 lines, the chat needs 40 and 10"),
        ((80, 9), {}, [], "it has 80 columns and 9 lines"),
        ((80, 24), {}, ["-m", "/no/such.gguf"], "no model file /no/such.gguf"),
        ((80, 24), {}, ["-c"], "no chat to go on with"),
        ((80, 24), {}, ["--resume", "7"], "no chat 7"),
        ((80, 24), {}, ["-c", "--resume", "7"], "cannot be used together"),
        ((80, 24), {"STRATA_TUI_DATA": "/proc/none"}, [], "Chats cannot be kept in /proc/none"),
        ((80, 24), {"STRATA_TUI_LOGS": "/proc/none"}, [], "set STRATA_TUI_LOGS"),
    ],
)
def test_chat_says_what_keeps_it_from_starting(
    env: dict[str, str], size: tuple[int, int], change: dict[str, str], words: list[str], part: str
) -> None:
    code, said = in_terminal(env | change, size, "chat", *words)
    assert code == 2
    assert part in said
    assert said.count("\n") == 1


def test_a_deleted_chat_is_not_resumed(env: dict[str, str], chats: Path) -> None:
    with Store(chats) as store:
        store.delete(1).result()
    code, said = in_terminal(env, (80, 24), "chat", "--resume", "1")
    assert (code, said) == (2, "strata-tui: Chat 1 was deleted.\n")
