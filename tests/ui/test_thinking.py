"""Thinking, chosen for each chat: with a template that has a switch, and one that has an effort."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import models
import pytest

from strata_tui.config import Settings
from strata_tui.engine.engine import EngineOptions
from strata_tui.sessions.rows import Role

if TYPE_CHECKING:
    from tests.ui.conftest import Running, Start

SHORT = Settings(temperature=0.0, max_tokens=4)
SWITCH = ("auto", "on", "off", "auto")
EFFORT = ("auto", "low", "medium", "high", "auto")


async def asked(run: Running, text: str) -> tuple[object, int]:
    """Sends a message to a new chat; the thinking that is stored with its reply, and the tokens of its prompt."""
    await run.say(text)
    await run.until(lambda: len(run.screen.chat.turns) == 2)
    await run.until(lambda: not run.screen.turns.busy)
    session = run.screen.chat.session
    assert session is not None
    run.store.flush()
    reply = next(m for m in run.store.branch(session) if m.role is Role.ASSISTANT)
    assert reply.params is not None and reply.reply_stats is not None
    return reply.params["thinking"], reply.reply_stats.prompt_tokens


@pytest.mark.parametrize(
    ("template", "words"),
    [(models.SWITCH_TEMPLATE, SWITCH), (models.EFFORT_TEMPLATE, EFFORT)],
    ids=["switch", "effort"],
)
async def test_a_key_goes_through_the_ways(start: Start, tmp_path: Path, template: str, words: tuple[str, ...]) -> None:
    model = models.qwen3moe(tmp_path / "thinks.gguf", template=template)
    async with start(model=model, settings=SHORT) as run:
        seen = []
        for word in words:
            origin = "default" if word == "auto" else "this chat"
            assert run.prompt.border_subtitle == f"thinking {word} ({origin}), alt+k"
            assert f"thinking {word} ({origin})" in run.shown()
            seen.append(await asked(run, "hello"))
            await run.pilot.press("ctrl+n")
            await run.until(lambda: run.screen.chat.session is None)
            assert run.prompt.border_subtitle == "thinking auto (default), alt+k", "another chat has its own"
            for _ in range(len(seen)):
                await run.pilot.press("alt+k")
                await run.pilot.pause()
        assert [thinking for thinking, _ in seen] == [None if word == "auto" else word for word in words]
        assert seen[0] == seen[-1]
        if template is models.SWITCH_TEMPLATE:
            assert seen[2][1] > seen[1][1] == seen[0][1], "off: the prompt closes the thinking at once"
        else:
            assert len({tokens for _, tokens in seen}) > 1


async def test_where_it_comes_from_is_said(start: Start, tmp_path: Path) -> None:
    model = models.qwen3moe(tmp_path / "thinks.gguf", template=models.EFFORT_TEMPLATE)
    async with start(model=model, settings=SHORT) as run:
        await run.say("/set all thinking low")
        await run.until(lambda: run.prompt.border_subtitle == "thinking low (settings), alt+k")
        await run.say("/set model thinking high")
        await run.until(lambda: run.prompt.border_subtitle == "thinking high (settings, this model), alt+k")
        await run.say("/thinking medium")
        await run.until(lambda: run.prompt.border_subtitle == "thinking medium (this chat), alt+k")
        assert run.screen.flash.text == "Thinking: medium (this chat)."
        assert (await asked(run, "hello"))[0] == "medium"
        session = run.screen.chat.session
        assert session is not None
        await run.pilot.press("ctrl+n")
        await run.until(lambda: run.prompt.border_subtitle == "thinking high (settings, this model), alt+k")
        await run.screen.commands.open_session(session)
        assert run.prompt.border_subtitle == "thinking medium (this chat), alt+k", "kept with the chat"
        await run.screen.commands.perform("edit")
        assert "new branch" in str(run.prompt.border_subtitle)
        await run.pilot.press("alt+k", "escape")
        await run.until(lambda: run.prompt.border_subtitle == "thinking high (this chat), alt+k")


async def test_a_running_reply_keeps_its_own(start: Start, tmp_path: Path, slow_engine: EngineOptions) -> None:
    model = models.qwen3moe(tmp_path / "thinks.gguf", template=models.SWITCH_TEMPLATE)
    async with start(model=model, settings=Settings(temperature=0.0, max_tokens=400), engine=slow_engine) as run:
        await run.say("a long answer please")
        await run.until(lambda: run.screen.replies.running and run.screen.replies.running.turn.text)
        await run.pilot.press("alt+k")
        await run.until(lambda: run.screen.flash.text == "Thinking: on (this chat). From the next reply on.")
        await run.pilot.press("escape")


async def test_a_word_that_the_template_does_not_know_is_not_shown_as_used(start: Start, tmp_path: Path) -> None:
    model = models.qwen3moe(tmp_path / "thinks.gguf", template=models.SWITCH_TEMPLATE)
    settings = Settings(temperature=0.0, max_tokens=4, thinking="low")
    async with start(model=model, settings=settings) as run:
        assert run.prompt.border_subtitle == "thinking auto (default), alt+k"
        assert (await asked(run, "hello"))[0] is None


async def test_without_a_choice_nothing_is_shown(start: Start) -> None:
    async with start(settings=SHORT) as run:
        assert run.prompt.border_subtitle in (None, "")
        await run.pilot.press("alt+k")
        assert "no variable for thinking" in run.screen.flash.text
