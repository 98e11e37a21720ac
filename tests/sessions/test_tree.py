from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata_tui.sessions.rows import MessageRow, Role, Status
from strata_tui.sessions.tree import Tree


def row(key: int, parent: int | None) -> MessageRow:
    return MessageRow(
        id=key,
        session_id=1,
        parent_id=parent,
        role=Role.USER,
        text=str(key),
        thinking="",
        status=Status.DONE,
        note="",
        model="",
        params=None,
        stats=None,
        owner_pid=None,
        created=0.0,
        updated=0.0,
    )


def ids(rows: list[MessageRow]) -> list[int]:
    return [r.id for r in rows]


def test_walks() -> None:
    #  1 - 2 - 4 - 6
    #    \ 3       5 (a second first message)
    tree = Tree([row(6, 4), row(4, 2), row(1, None), row(3, 1), row(2, 1), row(5, None)])
    assert ids(tree.path(6)) == [1, 2, 4, 6]
    assert ids(tree.path(3)) == [1, 3]
    assert tree.path(None) == []
    assert ids(tree.siblings(2)) == [2, 3]
    assert ids(tree.siblings(5)) == [1, 5]
    assert ids(tree.children(None)) == [1, 5]
    assert tree.children(6) == []
    assert tree.newest_leaf(1) == 3
    assert tree.newest_leaf(2) == 6
    assert tree.leaves() == [3, 5, 6]
    with pytest.raises(KeyError):
        tree.path(99)


@given(st.lists(st.integers(0, 10**6), max_size=60))
def test_every_message_is_on_the_path_of_some_leaf(picks: list[int]) -> None:
    rows = [row(1, None)]
    for n, pick in enumerate(picks, start=2):
        parent = pick % n  # 0: a first message
        rows.append(row(n, parent or None))
    tree = Tree(rows)
    on_paths: set[int] = set()
    for leaf in tree.leaves():
        path = tree.path(leaf)
        assert path[0].parent_id is None
        assert all(b.parent_id == a.id for a, b in zip(path, path[1:], strict=False))
        on_paths |= set(ids(path))
    assert on_paths == set(range(1, len(rows) + 1))
    for message in rows:
        assert message.id in ids(tree.siblings(message.id))
        assert message.id in ids(tree.path(tree.newest_leaf(message.id)))
