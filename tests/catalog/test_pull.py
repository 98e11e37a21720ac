"""Fetching models from a server that speaks the Hub's protocol, through huggingface_hub itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import HubServer, serving
from model_fixtures import TinyModel

from strata_tui.catalog.hub import Hub, Target, parse_target
from strata_tui.catalog.pull import Progress, Pull, Stopped
from strata_tui.commands.pull import report_line
from strata_tui.engine.gguf_info import read_info
from strata_tui.errors import UserError

REPO = "owner/tiny-GGUF"


@pytest.fixture
def hub(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    """A repository with a model in two quantizations, one of them split, and files that are no models."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    small = tiny_model("llama_dense").read_bytes()
    first = tiny_model("qwen3moe_split")
    shards = {
        f"Q4_K_M/{p.name.replace('qwen3moe_split', 'tiny-Q4_K_M')}": p.read_bytes()
        for p in sorted(first.parent.glob("qwen3moe_split-*"))
    }
    files = {
        "README.md": b"x",
        "tiny-Q8_0.gguf": small,
        "mmproj-tiny-F16.gguf": b"y",
        "tiny.imatrix.gguf": b"z",
        **shards,
    }
    with serving(HubServer(files)) as server:
        yield server


def pull(hub: HubServer, text: str, folder: Path, stop_at: int | None = None) -> tuple[Path, list[Progress]]:
    told: list[Progress] = []
    door = Hub(hub.endpoint)
    model = door.find(parse_target(text))
    path = Pull(
        door, model, folder, told.append, lambda: stop_at is not None and bool(told) and told[-1].done >= stop_at
    ).run()
    return path, told


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("owner/repo", Target("owner/repo")),
        ("owner/repo:Q4_K_M", Target("owner/repo", "Q4_K_M")),
        ("owner/repo:sub/a.gguf", Target("owner/repo", "sub/a.gguf")),
        ("hf.co/owner/repo:Q8_0", Target("owner/repo", "Q8_0")),
        ("https://huggingface.co/owner/repo/", Target("owner/repo")),
        ("https://huggingface.co/owner/repo/blob/main/sub/a.gguf?x=1", Target("owner/repo", "sub/a.gguf")),
        ("https://huggingface.co/owner/repo/tree/main", Target("owner/repo")),
        ("owner/repo/a.gguf", Target("owner/repo", "a.gguf")),
    ],
)
def test_what_may_be_asked_for(text: str, target: Target) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize("text", ["", "qwen3", "/", "owner/", "/repo"])
def test_what_is_no_repository(text: str) -> None:
    with pytest.raises(UserError, match="is no repository: write OWNER/REPO"):
        parse_target(text)


def test_the_models_of_a_repository(hub: HubServer) -> None:
    models = Hub(hub.endpoint).models(REPO)
    assert [(one.label, len(one.files)) for one in models] == [("Q8_0", 1), ("Q4_K_M", 3)]


@pytest.mark.parametrize(
    ("wanted", "label"),
    [
        ("q4_k_m", "Q4_K_M"),
        ("tiny-Q8_0.gguf", "Q8_0"),
        ("Q4_K_M/tiny-Q4_K_M-00001-of-00003.gguf", "Q4_K_M"),
        ("Q8", "Q8_0"),
    ],
)
def test_one_is_meant(hub: HubServer, wanted: str, label: str) -> None:
    assert Hub(hub.endpoint).find(Target(REPO, wanted)).label == label


def test_what_is_not_clear_is_asked_back(hub: HubServer) -> None:
    with pytest.raises(
        UserError, match=r"has 2 models: Q8_0 \(.*\), Q4_K_M \(.*\); name one, as in owner/tiny-GGUF:Q4_K_M"
    ):
        Hub(hub.endpoint).find(Target(REPO))
    with pytest.raises(UserError, match="has no Q2_K; it has Q8_0"):
        Hub(hub.endpoint).find(Target(REPO, "Q2_K"))
    hub.files = {"README.md": b"x"}
    with pytest.raises(UserError, match="has no GGUF files"):
        Hub(hub.endpoint).find(Target(REPO))


def test_names_tell_models_of_one_quantization_apart(hub: HubServer) -> None:
    data = hub.files["tiny-Q8_0.gguf"]
    hub.files = {"a-1B-Q8_0.gguf": data, "b-1B-Q8_0.gguf": data, "UD/c-UD-IQ2_XXS.gguf": data}
    assert {one.label for one in Hub(hub.endpoint).models(REPO)} == {"a-1B-Q8_0", "b-1B-Q8_0", "UD-IQ2_XXS"}


def test_all_shards_are_fetched_and_checked(hub: HubServer, tmp_path: Path) -> None:
    path, told = pull(hub, f"{REPO}:Q4_K_M", tmp_path)
    assert path == tmp_path / REPO / "Q4_K_M" / "tiny-Q4_K_M-00001-of-00003.gguf"
    assert len(read_info(path).shards) == 3
    assert told[-1].done == told[-1].total == sum(len(d) for n, d in hub.files.items() if n.startswith("Q4"))
    assert [one.done for one in told if one.stage.startswith("fetching")] == sorted(
        one.done for one in told if one.stage.startswith("fetching")
    )
    assert not list(tmp_path.rglob(".*"))
    hub.asked.clear()
    assert pull(hub, f"{REPO}:Q4_K_M", tmp_path)[0] == path
    assert hub.asked == []  # they are there


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library hands on what it reads in pieces of 64 KiB, not of 10 MB."""
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 64 * 1024)


def test_it_goes_on_where_it_was_stopped(hub: HubServer, tmp_path: Path, small_chunks: None) -> None:
    data = hub.files["tiny-Q8_0.gguf"]
    with pytest.raises(Stopped):
        pull(hub, f"{REPO}:Q8_0", tmp_path, stop_at=200_000)
    [part] = (tmp_path / REPO).iterdir()
    have = part.stat().st_size
    assert part.name.startswith(".tiny-Q8_0.gguf.") and 200_000 <= have < len(data)
    hub.asked.clear()
    path, told = pull(hub, f"{REPO}:Q8_0", tmp_path)
    assert hub.asked == [("tiny-Q8_0.gguf", f"bytes={have}-")]
    assert path.read_bytes() == data and told[0].done == have


def test_a_connection_that_ends_early_is_made_again(hub: HubServer, tmp_path: Path, small_chunks: None) -> None:
    hub.cut_after = 400_000
    path, _ = pull(hub, f"{REPO}:Q8_0", tmp_path)
    assert path.read_bytes() == hub.files["tiny-Q8_0.gguf"]
    assert len(hub.asked) == 2 and hub.asked[1][1].startswith("bytes=")


def test_a_server_that_cannot_resume_is_read_from_the_start(hub: HubServer, tmp_path: Path, small_chunks: None) -> None:
    data = hub.files["tiny-Q8_0.gguf"]
    hub.files, hub.ranges = {"tiny-Q8_0.gguf": data}, False
    with pytest.raises(Stopped):
        pull(hub, REPO, tmp_path, stop_at=100_000)
    assert pull(hub, REPO, tmp_path)[0].read_bytes() == data


def test_a_damaged_file_is_refused_and_removed(hub: HubServer, tmp_path: Path) -> None:
    hub.sha256["tiny-Q8_0.gguf"] = "0" * 64
    with pytest.raises(UserError, match="tiny-Q8_0.gguf arrived damaged: its hash is .* and not 000000000000"):
        pull(hub, f"{REPO}:Q8_0", tmp_path)
    assert list((tmp_path / REPO).iterdir()) == []


def test_another_version_of_the_file_begins_anew(hub: HubServer, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        pull(hub, f"{REPO}:Q8_0", tmp_path, stop_at=100_000)
    hub.files["tiny-Q8_0.gguf"] = hub.files["Q4_K_M/tiny-Q4_K_M-00002-of-00003.gguf"]
    hub.asked.clear()
    with pytest.raises(UserError, match="shard"):  # the right bytes, but no whole model
        pull(hub, f"{REPO}:Q8_0", tmp_path)
    assert hub.asked == [("tiny-Q8_0.gguf", "")]


@pytest.mark.parametrize(
    ("refuse", "reason"),
    [
        ((404, "RepoNotFound"), "There is no repository owner/tiny-GGUF"),
        ((403, "GatedRepo"), "accept its terms"),
        ((500, ""), "answered 500 for owner/tiny-GGUF: try again later"),
    ],
)
def test_what_the_hub_refuses_is_said(hub: HubServer, refuse: tuple[int, str], reason: str) -> None:
    hub.refuse = refuse
    with pytest.raises(UserError, match=reason):
        Hub(hub.endpoint).models(REPO)


def test_without_a_connection_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="127.0.0.1:9 cannot be reached .*: check the connection"):
        Hub("http://127.0.0.1:9").models(REPO)
    with pytest.raises(UserError, match="is no name of a repository"):
        Hub("http://127.0.0.1:9").models("owner/re po")


def test_a_file_outside_the_folder_is_not_fetched(hub: HubServer, tmp_path: Path) -> None:
    hub.files = {"../../evil.gguf": b"x"}
    with pytest.raises(UserError, match="names a file outside its folder"):
        pull(hub, REPO, tmp_path)


def test_the_disk_must_have_room(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(UserError, match="only 0.0 MiB are free"):
        pull(hub, f"{REPO}:Q8_0", tmp_path)


def test_the_command(hub: HubServer, tmp_path: Path) -> None:
    env = {**os.environ, "HF_ENDPOINT": hub.endpoint, "STRATA_TUI_MODELS": str(tmp_path / "models")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "strata_tui", *words], env=env, capture_output=True, text=True
        )

    listed = run("pull", REPO, "--list")
    assert [line.split()[2] for line in listed.stdout.splitlines()] == ["Q8_0", "Q4_K_M"], listed.stderr
    done = run("pull", f"{REPO}:Q8_0")
    assert done.returncode == 0, done.stderr
    path = tmp_path / "models" / REPO / "tiny-Q8_0.gguf"
    assert done.stdout == f"{path}\n" and path.exists()
    assert "100 %" in done.stderr
    assert str(path) in run("models").stdout  # it is found from now on
    refused = run("pull", REPO)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1 and "name one" in refused.stderr


def test_a_report() -> None:
    progress = Progress("fetching Q4_K_M", 6 << 30, 24 << 30)
    assert report_line(progress, 60, 6 << 30) == "fetching Q4_K_M  6.00 GiB of 24.00 GiB  25 %  107.4 MB/s  3 min left"
    assert report_line(progress, 0, 0) == "fetching Q4_K_M  6.00 GiB of 24.00 GiB  25 %"
