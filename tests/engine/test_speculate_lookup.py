"""Prompt look-up: what followed the last time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strata_tui.engine.speculate_lookup import LONGEST, SHORTEST, Lookup


def test_what_followed_is_drafted() -> None:
    text = Lookup()
    text.reset([1, 2, 3, 4, 5, 9, 2, 3])
    assert text.draft(3) == ([4, 5, 9], 2)
    text.extend([4])
    assert text.draft(2) == ([5, 9], 3)
    text.extend([7])
    assert text.draft(4) == ((), 0)


def test_the_latest_occurrence_counts() -> None:
    text = Lookup()
    text.reset([1, 2, 5, 1, 2, 6, 1, 2])
    assert text.draft(1) == ([6], 2)


def test_a_text_that_repeats_itself() -> None:
    text = Lookup()
    text.reset([7] * 30)
    assert text.draft(4) == ([7], LONGEST)


def test_reset_forgets() -> None:
    text = Lookup()
    text.reset([1, 2, 3, 1, 2])
    text.reset([1, 2])
    assert text.draft(4) == ((), 0)


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 4))
def test_a_draft_is_what_the_text_says_behind_a_match(tokens: list[int], most: int) -> None:
    text = Lookup()
    text.extend(tokens)
    drafts, match = text.draft(most)
    ends = [at for at in range(SHORTEST, len(tokens)) if tokens[at - SHORTEST : at] == tokens[len(tokens) - SHORTEST :]]
    assert bool(drafts) == bool(ends)
    if drafts:
        size = min(match, LONGEST)
        assert any(
            list(drafts) == tokens[at : at + most] and tokens[max(0, at - size) : at] == tokens[len(tokens) - size :]
            for at in ends
        )
