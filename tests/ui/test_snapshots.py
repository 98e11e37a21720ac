"""Going back to a chat on the screen: its tokens come from a KV snapshot, and the panel says so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from strata_tui.engine.counters import ReplyStats
from strata_tui.engine.options import EngineOptions
from strata_tui.engine.snapshot_names import chat_key

if TYPE_CHECKING:
    from tests.ui.conftest import Running, Start

LONG = "the people of water said that their expert could find a long way " * 5


async def said(run: Running, text: str) -> ReplyStats:
    turns = len(run.screen.chat.turns)
    await run.say(text)
    await run.until(lambda: len(run.screen.chat.turns) == turns + 2)
    await run.reply()
    stats = run.screen.chat.turns[-1].stats
    assert stats is not None
    return stats


async def test_a_chat_is_not_read_again(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    engine = EngineOptions(gpu=-1, threads=1, context=1024, snapshots=folder)
    async with start(size=(120, 60), engine=engine) as run:
        first = await said(run, LONG)
        one = run.screen.chat.session
        await run.pilot.press("ctrl+n")
        await said(run, "what did " + LONG)
        two = run.screen.chat.session
        assert one is not None and two is not None
        await run.screen.commands.chats.open(one)
        second = await said(run, "and then")
        assert second.reused_ram == second.reused_tokens >= first.prompt_tokens - 1
        await run.until(lambda: "from RAM" in run.shown())
        run.store.flush()
        kept = run.store.branch(one)[-1].reply_stats
        assert kept is not None and kept.reused_ram == second.reused_ram
        await run.screen.commands.chats.open(two)
        await said(run, "and then")
        run.store.delete(one).result()
        await run.screen.commands.chats.remove(None)
    names = [f.name for f in folder.iterdir()]
    assert [n.partition("-")[2] for n in names] == [f"{chat_key(run.options.store, two)}.kv"]
    async with start(size=(120, 60), engine=engine, resume=two) as run:
        await run.until(lambda: len(run.screen.chat.turns) == 4)
        third = await said(run, "and now")
        assert third.reused_disk == third.reused_tokens > 60
        await run.until(lambda: "from disk" in run.shown())
