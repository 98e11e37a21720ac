"""Choosing a model on the whole screen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hub_server import HubServer, serving
from model_fixtures import TinyModel

from strata_tui.engine.events import Event, LoadProgress
from strata_tui.sections import Sections
from strata_tui.ui.loader import Loader
from strata_tui.ui.screens.models import ModelsScreen

if TYPE_CHECKING:
    from tests.ui.conftest import Running, Start


@pytest.fixture
def folder(tmp_path: Path, tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own with a folder of models: an MoE, a dense one, one that is cut short."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STRATA_TUI_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "moe-Q4.gguf").symlink_to(tiny_model("qwen3moe"))
    (folder / "dense-Q8.gguf").write_bytes(tiny_model("llama_dense").read_bytes())
    (folder / "cut.gguf").write_bytes(tiny_model("llama_dense").read_bytes()[:-500])
    return folder


def picker(run: Running) -> ModelsScreen:
    found = run.app.screen
    assert isinstance(found, ModelsScreen)
    return found


async def test_a_model_is_chosen_and_loaded(start: Start, folder: Path) -> None:
    async with start(sections=Sections(folders=(folder,))) as run:
        await run.pilot.press("alt+m")
        await run.until(lambda: "2 models, 1 file that cannot be used" in run.shown())
        shown = run.shown()
        for part in (
            "● moe-Q4",
            "dense-Q8",
            "in slots",
            "4 of 16 exp",
            "cut  is cut short",
            "KV cache",
            "1 024 tokens",
        ):
            assert part in shown, part
        await run.pilot.press(*"dense")
        await run.until(lambda: picker(run).chosen is not None and picker(run).chosen.found.name == "dense-Q8")
        await run.pilot.press("enter")
        await run.until(lambda: run.screen.model is not None and run.screen.model.name == "tiny llama")
        assert run.app.screen is run.screen


async def test_letters_that_no_name_has_show_the_folders(start: Start, folder: Path) -> None:
    async with start(sections=Sections(folders=(folder,)), size=(200, 50)) as run:
        await run.pilot.press("alt+m")
        await run.until(lambda: "how to add folders" in run.shown())
        await run.pilot.press(*"zq")
        await run.until(lambda: "No model has these letters (3 models in all)." in run.shown())
        shown = run.shown()
        for part in (str(folder)[:60], "own folder", ", not there", str(run.options.settings_file)[:40], "folders = ["):
            assert part in shown, part


async def test_what_cannot_be_used_is_not_loaded(start: Start, folder: Path) -> None:
    async with start(sections=Sections(folders=(folder,)), size=(80, 24)) as run:
        await run.pilot.press("alt+m")
        await run.until(lambda: "cannot be used" in run.shown())
        assert "4 of 16 experts a layer" in " ".join(run.shown().replace("┃", " ").split())
        await run.pilot.press("pagedown", "enter")
        await run.pilot.pause()
        assert picker(run).chosen is not None and not picker(run).chosen.usable
        assert "cut short" in run.shown()
        await run.pilot.press("escape")
        assert run.app.screen is run.screen and run.screen.model is not None


async def test_a_model_is_loaded_by_name(start: Start, folder: Path) -> None:
    async with start(sections=Sections(folders=(folder,))) as run:
        await run.pilot.press(*"/model den")
        await run.until(lambda: [c.text for c in run.screen.menu.choices] == ["dense-Q8"])
        await run.pilot.press("tab", "enter")
        await run.until(lambda: run.screen.model is not None and run.screen.model.name == "tiny llama")
        await run.say("/model q")
        await run.until(lambda: "q may mean 2 models: dense-Q8, moe-Q4." in run.screen.flash.text)
        await run.say("/model nothing")
        await run.until(lambda: "No model nothing was found" in run.screen.flash.text)
        await run.say(f"/model {folder / 'cut.gguf'}")
        await run.until(lambda: "is cut short" in run.screen.flash.text)
        assert run.screen.model is not None


async def test_a_load_that_was_stopped_can_be_started_again(start: Start, tmp_path: Path) -> None:
    async with start(load=False) as run:
        told: list[Event] = []
        loader = Loader(run.engine, tmp_path / "good.gguf", told.append)
        for file, end in (("stopped.gguf", {"stopped": True}), ("broken.gguf", {})):
            loader.begin(tmp_path / file)
            assert loader.stop()
            loader.ended(False, **end)
            loader.begin(None)
        assert [event.stage for event in told if isinstance(event, LoadProgress)] == [
            f"opening {name}.gguf" for name in ("stopped", "stopped", "broken", "good")
        ]


async def test_a_new_chat_takes_the_new_models_system_prompt(start: Start, folder: Path) -> None:
    async with start(sections=Sections(folders=(folder,))) as run:
        run.options.given.per_model["tiny llama"] = {"system": "You are dense."}
        await run.say("/model dense-Q8")
        await run.until(lambda: run.screen.chat.system == "You are dense.")


async def test_a_model_is_fetched_while_the_chat_goes_on(
    start: Start, folder: Path, tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STRATA_TUI_MODELS", str(tmp_path / "fetched"))
    with serving(HubServer({"new-Q8_0.gguf": tiny_model("llama_dense").read_bytes()})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        async with start() as run:
            await run.say("/pull nonsense")
            assert "is no repository" in run.screen.flash.text
            await run.say("/pull owner/tiny-GGUF:Q2_K")
            await run.until(lambda: "has no Q2_K; it has Q8_0" in run.screen.flash.text)
            await run.say("/pull owner/tiny-GGUF")
            await run.until(lambda: "Fetched: /model" in run.screen.flash.text)
            await run.say("/pull stop")
            assert "Nothing is being fetched" in run.screen.flash.text
            await run.say("/model new-Q8_0")
            await run.until(lambda: run.screen.model is not None and run.screen.model.name == "tiny llama")
