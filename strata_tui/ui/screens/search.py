"""Full-text search over all chats, as one types."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import ClassVar

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ...errors import UserError
from ...sessions.rows import Role
from ...sessions.search import MOST_HITS, Hit, terms_of
from ...sessions.store import Store
from ...text import clean_line
from ..actions import Where, bindings
from ..widgets.rows import Rows
from .action_screen import ActionScreen, sentence

_WAIT_SECONDS = 0.12  # after a key before the search begins
_HINT = 'Beginnings of words count; "..." keeps words together.'


class SearchScreen(ActionScreen[tuple[str, Hit | None]]):
    """The answer: what was searched for, and the hit to go to."""

    CSS_PATH = "search.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.PAGES), *bindings(Where.SEARCH)]

    def __init__(self, store: Store, words: str) -> None:
        super().__init__()
        self._store = store
        self._words = words
        self._hits: Sequence[Hit] = ()
        self._found: str | None = None  # the words whose hits are shown
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="section page", id="search") as box:
            box.border_title = "Search all chats"
            box.border_subtitle = "enter goes there, esc closes"
            yield Input(self._words, placeholder="Words", compact=True, id="search-words")
            yield Rows(id="search-hits")
            yield Static(Content(_HINT), id="search-news")

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self.query_one(OptionList).can_focus = False  # the keys stay with the words
        self._search()

    def on_resize(self) -> None:
        self.draw_soon(self._show)

    @on(Input.Changed)
    def _typed(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(_WAIT_SECONDS, self._search)

    def _search(self) -> None:
        self.run_worker(self._find(self.query_one(Input).value), group="search", exclusive=True)

    async def _find(self, words: str) -> None:
        try:
            sought = terms_of(words)
            hits = await asyncio.to_thread(self._store.search, words)
        except UserError as error:
            hits, text = (), str(error)
        else:
            text = _HINT if not sought else news_of(len(hits))
        if self.gone:
            return
        self._hits = hits
        self.tell(text)
        self._found = words
        self._show()

    def _show(self) -> None:
        hits = self.query_one("#search-hits", OptionList)
        room = max(20, hits.scrollable_content_region.width - 1)
        hits.clear_options()
        hits.add_options(Option(hit_text(hit, room)) for hit in self._hits)
        if self._hits:
            hits.highlighted = 0

    # Moving the highlight, while the words keep the keys

    def do_search_up(self) -> None:
        """The hit above."""
        self.query_one(OptionList).action_cursor_up()

    def do_search_down(self) -> None:
        """The hit below."""
        self.query_one(OptionList).action_cursor_down()

    def do_search_page_up(self) -> None:
        """A page up."""
        self.query_one(OptionList).action_page_up()  # type: ignore[no-untyped-call]

    def do_search_page_down(self) -> None:
        """A page down."""
        self.query_one(OptionList).action_page_down()  # type: ignore[no-untyped-call]

    @on(Input.Submitted)
    async def _submitted(self, event: Input.Submitted) -> None:
        if event.value != self._found:  # enter came before the search
            await self._find(event.value)
        if not self.gone:
            self._choose(self.query_one(OptionList).highlighted)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._choose(event.option_index)

    def _choose(self, place: int | None) -> None:
        if place is not None and place < len(self._hits):
            self.dismiss((self.query_one(Input).value, self._hits[place]))

    def do_page_close(self) -> None:
        """Closes; what was typed is there again the next time."""
        self.dismiss((self.query_one(Input).value, None))

    def tell(self, text: str, error: bool = False) -> None:
        self.query_one("#search-news", Static).update(sentence(text, error))


def news_of(found: int) -> str:
    """What came of a search, in words."""
    if found == 0:
        return "Nothing has all of these words."
    if found >= MOST_HITS:
        return f"The best {MOST_HITS}; more words narrow it down."
    return "1 result" if found == 1 else f"{found} results"


def hit_text(hit: Hit, room: int) -> Content:
    """A hit in two lines (a chat's title: one): where and when, and the words around what matched."""
    when = datetime.fromtimestamp(hit.created).strftime("  %d %b %Y")
    who = "chat" if hit.role is None else "you" if hit.role is Role.USER else "reply"
    title = _styled(hit.snippet) if hit.role is None else [(clean_line(hit.title) or "untitled", "bold")]
    head = Content.assemble((f"{who:<5} ", "$secondary"), *title).truncate(room - len(when), ellipsis=True, pad=True)
    below = () if hit.role is None else ("\n      ", *_styled(around(hit.snippet, room - 6)))
    return Content.assemble(head, (when, "$secondary"), *below)


def around(snippet: Sequence[tuple[str, bool]], room: int) -> list[tuple[str, bool]]:
    """A snippet cut at its start, so that what matched first is within the first part of `room` cells."""
    pieces = list(snippet)
    lead = ""
    while pieces and not pieces[0][1]:
        lead += pieces.pop(0)[0]
    match = pieces[0][0] if pieces else ""
    most = max(8, min(room // 3, room - cell_len(match)))
    if cell_len(lead) > most:
        while cell_len(lead) > most - 1:
            lead = lead[1:]
        word = lead.find(" ", 0, 12) + 1  # from a whole word on, where one begins soon
        lead = "…" + lead[word:]
    return [(lead, False), *pieces] if lead else pieces


def _styled(pieces: Iterable[tuple[str, bool]]) -> Iterable[str | tuple[str, str]]:
    return [(text, "bold $accent underline") if marked else text for text, marked in pieces]
