"""Loading models on the screen: failures, and another model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.ui.conftest import Start


async def test_a_load_that_fails_is_one_sentence_and_the_chats_stay_usable(start: Start, tmp_path: Path) -> None:
    async with start() as run:
        await run.say("kept")
        await run.until(lambda: run.screen.chat.turns)
        await run.reply()
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"PK\x03\x04 something else entirely" * 10)
    async with start(model=broken, load=False) as run:
        await run.until(lambda: run.screen.flash.text)
        assert "broken.gguf" in run.screen.flash.text
        assert "no model" in run.shown()
        await run.say("can you hear me?")
        assert run.prompt.text == "can you hear me?"
        assert "No model is loaded" in run.screen.flash.text
        await run.pilot.press("f2")
        await run.until(lambda: run.screen.chats.highlighted is not None)
        await run.pilot.press("enter")
        await run.until(lambda: run.screen.chat.turns)
        assert "kept" in run.shown()


async def test_a_model_can_be_loaded_after_a_failure(
    start: Start, tmp_path: Path, tiny_model: Callable[[str], Path]
) -> None:
    async with start(model=tmp_path / "missing.gguf", load=False) as run:
        await run.until(lambda: run.screen.flash.text)
        await run.say(f"/open {tiny_model('llama_dense')}")
        await run.loaded()
        assert run.screen.snapshot.model is not None
        assert "dense" in run.shown()


async def test_a_wrong_path_leaves_the_loaded_model(start: Start, tmp_path: Path) -> None:
    async with start() as run:
        model = run.screen.model
        await run.say(f"/open {tmp_path / 'none.gguf'}")
        await run.until(lambda: "none.gguf" in run.screen.flash.text)
        assert run.screen.model is model and not run.screen.loader.loading
        await run.say("/open")
        await run.until(lambda: run.screen.model is not None and run.screen.model is not model)
        assert run.screen.model.path == model.path
