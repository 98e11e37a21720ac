"""Prompt look-up: drafts the tokens that followed the last time the text ended as it ends now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SHORTEST, LONGEST = 2, 8  # tokens of a match that are looked for, and that are counted
_KEY = 3  # tokens of the longer of the two kinds of keys


class Lookup:
    """An index of one text, which grows at its end. Every operation is O(1) per token."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        # what follows the last occurrence of some tokens; and the one before, since the end of the text itself is one
        self._after: dict[tuple[int, ...], int] = {}
        self._before: dict[tuple[int, ...], int] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def reset(self, tokens: Iterable[int] = ()) -> None:
        self._tokens.clear()
        self._after.clear()
        self._before.clear()
        self.extend(tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """The text goes on."""
        text = self._tokens
        for token in tokens:
            text.append(token)
            end = len(text)
            for size in (SHORTEST, _KEY):
                if end >= size:
                    key = tuple(text[end - size :])
                    last = self._after.get(key)
                    if last is not None:
                        self._before[key] = last
                    self._after[key] = end

    def draft(self, most: int) -> tuple[Sequence[int], int]:
        """Up to `most` tokens that may follow, and how many tokens of the text's end matched (at most LONGEST)."""
        text = self._tokens
        for size in (_KEY, SHORTEST):
            if len(text) < size:
                continue
            at = self._before.get(tuple(text[len(text) - size :]))
            if at is None:
                continue
            match = size
            while match < LONGEST and match < at and text[at - 1 - match] == text[len(text) - 1 - match]:
                match += 1
            return text[at : at + most], match
        return (), 0
