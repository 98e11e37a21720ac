"""Finding models in the folders of other programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import models
import pytest
from model_fixtures import TinyModel

from strata_tui.catalog.estimate import EstimatedSizes, estimate, machine
from strata_tui.catalog.ollama import ollama_models
from strata_tui.catalog.places import Kind, Place, places
from strata_tui.catalog.scan import hub_name, scan
from strata_tui.engine import native
from strata_tui.engine.gguf_info import expert_groups, read_info
from strata_tui.engine.options import EngineOptions
from strata_tui.errors import UserError


def put(path: Path, target: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def manifest(folder: Path, place: str, digest: str, media: str = "application/vnd.ollama.image.model") -> None:
    path = folder / "manifests" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"layers": [{"mediaType": "x", "digest": "y"}, {"mediaType": media, "digest": digest}]}))


def test_every_programs_folder_is_known(tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    (moved / "lms").mkdir(parents=True)
    (tmp_path / ".lmstudio-home-pointer").write_text(f"{moved}/lms\n")
    (moved / "lms" / "settings.json").write_text(json.dumps({"downloadsFolder": str(moved / "big")}))
    found = places([tmp_path / "own"], tmp_path / "beside" / "a.gguf", {"HOME": str(tmp_path)})
    folders = {
        (place.kind, str(place.folder.relative_to(tmp_path)) if tmp_path in place.folder.parents else None)
        for place in found
    }
    assert found[0] == Place(Kind.OWN, tmp_path / "own")
    assert {
        (Kind.OWN, "beside"),
        (Kind.HUB, ".cache/huggingface/hub"),
        (Kind.LLAMA_CPP, ".cache/llama.cpp"),
        (Kind.LM_STUDIO, "moved/big"),
        (Kind.LM_STUDIO, "moved/lms/models"),
        (Kind.OLLAMA, ".ollama/models"),
    } <= folders
    assert len(set(found)) == len(found)


def test_variables_move_them() -> None:
    env = {"HOME": "/h", "HF_HOME": "/hf", "LLAMA_CACHE": "/lc", "OLLAMA_MODELS": "/o"}
    found = {(place.kind, str(place.folder)) for place in places(environ=env)}
    assert {(Kind.HUB, "/hf/hub"), (Kind.LLAMA_CPP, "/lc"), (Kind.OLLAMA, "/o")} <= found
    assert places(environ={"HOME": "/h", "HF_HUB_CACHE": "/x", "HF_HOME": "/hf"})[0].folder == Path("/x")


def test_the_damaged_settings_of_others_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / ".lmstudio").mkdir()
    (tmp_path / ".lmstudio" / "settings.json").write_text("[1")
    (tmp_path / ".lmstudio-home-pointer").write_bytes(b"\xff")
    assert Place(Kind.LM_STUDIO, tmp_path / ".lmstudio" / "models") in places(environ={"HOME": str(tmp_path)})


def test_models_are_found_once_with_the_names_that_their_programs_give(tmp_path: Path, tiny_model: TinyModel) -> None:
    moe, dense = tiny_model("qwen3moe"), tiny_model("llama_dense")
    hub = tmp_path / "hub"
    put(hub / "models--owner--big-GGUF" / "snapshots" / "abc" / "Q4" / "big-Q4_0.gguf", moe)
    put(tmp_path / "lms" / "owner" / "again.gguf", moe)
    ollama = tmp_path / "ollama"
    put(ollama / "blobs" / "sha256-11", dense)
    manifest(ollama, "registry.ollama.ai/library/llama/7b", "sha256:11")
    manifest(ollama, "registry.ollama.ai/me/gone/latest", "sha256:22")
    where = [
        Place(Kind.HUB, hub),
        Place(Kind.LM_STUDIO, tmp_path / "lms"),
        Place(Kind.OLLAMA, ollama),
        Place(Kind.OWN, tmp_path / "none"),
    ]
    found = list(scan(where))
    assert [(one.kind, one.name, one.info is not None) for one in found] == [
        (Kind.HUB, "owner/big-GGUF: big-Q4_0", True),
        (Kind.OLLAMA, "llama:7b", True),
        (Kind.OLLAMA, "me/gone:latest", False),
    ]
    assert found[0].info is not None and found[0].info.n_experts == models.EXPERTS
    assert "is missing: fetch the model again" in found[2].problem


def test_names_in_ollamas_folder(tmp_path: Path) -> None:
    manifest(tmp_path, "registry.ollama.ai/library/qwen3/30b", "sha256:1")
    manifest(tmp_path, "registry.ollama.ai/me/mine/latest", "sha256:2")
    manifest(tmp_path, "hf.co/owner/repo-GGUF/Q4_K_M", "sha256:3")
    manifest(tmp_path, "registry.ollama.ai/library/escape/x", "sha256:../../etc/passwd")
    manifest(tmp_path, "registry.ollama.ai/library/none/x", "sha256:4", media="other")
    (tmp_path / "manifests" / "junk").write_bytes(b"\xff{")
    assert list(ollama_models(tmp_path)) == [
        ("hf.co/owner/repo-GGUF:Q4_K_M", tmp_path / "blobs" / "sha256-3"),
        ("me/mine:latest", tmp_path / "blobs" / "sha256-2"),
        ("qwen3:30b", tmp_path / "blobs" / "sha256-1"),
    ]


def projector(path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_tensor("v.blk.0.w", models.np.zeros((8, 8), dtype=models.np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def cut_short(path: Path, source: Path) -> Path:
    path.write_bytes(source.read_bytes()[:-100])
    return path


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path, _: projector(path), "cannot chat: it is a projector"),
        (cut_short, "is cut short"),
        (lambda path, _: path.write_bytes(b"no model"), "is not a GGUF file"),
    ],
)
def test_what_cannot_be_used_is_listed_with_its_reason(
    tmp_path: Path, tiny_model: TinyModel, make: Callable[[Path, Path], object], reason: str
) -> None:
    make(tmp_path / "bad.gguf", tiny_model("llama_dense"))
    [found] = scan([Place(Kind.OWN, tmp_path)])
    assert found.info is None and reason in found.problem and str(tmp_path / "bad.gguf") in found.problem


def test_a_scan_can_be_stopped(tmp_path: Path, tiny_model: TinyModel) -> None:
    for number in range(3):
        (tmp_path / f"{number}.gguf").write_bytes(tiny_model("llama_dense").read_bytes())
    found = []
    for one in scan([Place(Kind.OWN, tmp_path)], lambda: len(found) == 2):
        found.append(one)
    assert len(found) == 2


def test_a_changed_file_is_read_again(tmp_path: Path, tiny_model: TinyModel) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(tiny_model("llama_dense").read_bytes())
    place = Place(Kind.OWN, tmp_path)
    [first] = scan([place])
    assert [one is first for one in scan([place])] == [True]
    path.write_bytes(b"broken")
    [now] = scan([place])
    assert now.info is None


def test_split_models_have_one_name() -> None:
    path = Path("/h/models--a--b--c/snapshots/x/q/m-00001-of-00003.gguf")
    assert hub_name(path) == "a/b-c: m" and hub_name(Path("/x/m.gguf")) is None


@pytest.mark.parametrize("name", models.MODELS)
def test_estimated_slots_are_about_what_the_tier_says(name: str, tiny_model: TinyModel) -> None:
    info = read_info(tiny_model(name))
    core = native.load()
    tier = core.Tier(native.pick_device(-1), [str(path) for path in info.shards], expert_groups(info))
    try:
        sizes = EstimatedSizes(info)
        assert sizes.n_experts == tier.n_experts
        if tier.n_experts:
            assert sizes.min_slots() == tier.min_slots()
        for slots in (tier.min_slots(), tier.n_experts // 2, tier.n_experts):
            real = tier.arena_bytes(slots)
            assert real <= sizes.arena_bytes(slots) <= 1.1 * real
    finally:
        tier.close()


def test_the_plan_without_opening(tiny_model: TinyModel) -> None:
    options = EngineOptions(gpu=-1)
    info = read_info(tiny_model("qwen3moe"))
    there = machine(options)
    assert not there.on_gpu
    plan = estimate(info, there, options)
    assert plan.n_experts == EstimatedSizes(info).n_experts >= plan.slots >= plan.min_slots
    with pytest.raises(UserError, match="needs .* of RAM"):
        estimate(info, there, EngineOptions(gpu=-1, ram_gib=0.001))
    more = machine(options, held=1 << 30).ram.available
    assert more is not None and there.ram.available is not None and more > there.ram.available + (1 << 29)
