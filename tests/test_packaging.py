"""What gets built and installed, and how the documentation says to do it."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
import tarfile
from importlib.metadata import entry_points, files
from pathlib import Path
from types import ModuleType

import pytest

from strata_tui.engine import native

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "engine_ext" / "fetch_headers.py"


@pytest.fixture(scope="module")
def fetch_headers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fetch_headers", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_script(target: Path, cache: Path, sdist: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the build script with pip cut off from every index, so that it can only fail or use what is here."""
    env = {**os.environ, "XDG_CACHE_HOME": str(cache), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    env["STRATA_LLAMA_SDIST"] = str(sdist or "")
    return subprocess.run([sys.executable, str(SCRIPT), str(target)], env=env, capture_output=True, text=True)


def archive_of(path: Path, members: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


def test_ci_runs_the_readmes_test_command() -> None:
    line = (ROOT / ".ci" / "run").read_text().splitlines()[-1]
    assert line.endswith("pytest")
    assert f"    {line}\n" in (ROOT / "README.md").read_text()


def test_readme_gives_the_cuda_build_that_the_notice_gives() -> None:
    assert f"    {native.CUDA_BUILD}\n" in (ROOT / "README.md").read_text()


def test_the_headers_belong_to_the_required_llama_cpp_python(fetch_headers: ModuleType) -> None:
    assert fetch_headers.VERSION == native.LLAMA_CPP_PYTHON


def test_what_is_installed() -> None:
    installed = {str(path) for path in files("strata-tui") or []}
    assert "strata_tui/engine/_core.abi3.so" in installed
    for source in [*ROOT.glob("themes/*.toml"), *(ROOT / "strata_tui").rglob("*.tcss")]:
        assert f"strata_tui/{source.relative_to(ROOT)}".replace("strata_tui/strata_tui/", "strata_tui/") in installed
    assert [path for path in installed if path.endswith((".c", ".h", ".so.0"))] == []
    assert [script.value for script in entry_points(name="strata-tui", group="console_scripts")] == [
        "strata_tui.__main__:main"
    ]


def test_a_wrong_archive_is_refused(tmp_path: Path) -> None:
    wrong = archive_of(tmp_path / "wrong.tar.gz", {"readme": "nothing"})
    run = run_script(tmp_path / "out", tmp_path / "cache", wrong)
    assert run.returncode == 1
    assert f"{wrong} is not the source archive of llama-cpp-python" in run.stderr
    assert not (tmp_path / "out").exists()


def test_a_missing_archive_is_refused(tmp_path: Path) -> None:
    run = run_script(tmp_path / "out", tmp_path / "cache", tmp_path / "none.tar.gz")
    assert run.returncode == 1
    assert "none.tar.gz, which is no file" in run.stderr


def test_without_an_index_the_message_says_what_to_do(tmp_path: Path) -> None:
    run = run_script(tmp_path / "out", tmp_path / "cache")
    assert run.returncode == 1
    assert "name a copy of that archive in the environment variable STRATA_LLAMA_SDIST" in run.stderr


def test_headers_are_taken_kept_and_checked(
    fetch_headers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = fetch_headers.ROOT
    version = "".join(f"set(GGML_VERSION_{part} {n})\n" for part, n in (("MAJOR", 1), ("MINOR", 2), ("PATCH", 3)))
    archive = archive_of(
        tmp_path / "sdist.tar.gz",
        {
            f"{root}/ggml/CMakeLists.txt": version,
            f"{root}/ggml/include/ggml.h": "ggml",
            f"{root}/ggml/src/ggml-impl.h": "impl",
            f"{root}/ggml/src/ggml-backend-impl.h": "backend impl",
            f"{root}/ggml/src/ggml-cpu/other.h": "not wanted",
            f"{root}/ggml/src/ggml.c": "not wanted",
            f"{root}/include/llama.h": "llama",
        },
    )
    monkeypatch.setattr(fetch_headers, "SHA256", fetch_headers.sha256_of(archive))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("STRATA_LLAMA_SDIST", str(archive))
    wanted = ["ggml-backend-impl.h", "ggml-impl.h", "ggml.h", "llama.h", "strata_versions.h"]

    first = tmp_path / "first"
    fetch_headers.main(first)
    assert sorted(path.name for path in first.glob("*.h")) == wanted
    assert '#define STRATA_GGML_VERSION "1.2.3"' in (first / "strata_versions.h").read_text()

    monkeypatch.delenv("STRATA_LLAMA_SDIST")
    monkeypatch.setattr(fetch_headers, "download", lambda folder: archive)  # stands where pip would be asked
    archive.rename(tmp_path / "moved.tar.gz")
    second = tmp_path / "second"
    fetch_headers.main(second)  # the archive is gone: this comes from the cache
    assert sorted(path.name for path in second.glob("*.h")) == wanted

    (fetch_headers.cache_folder() / "llama.h").write_text("damaged")
    with pytest.raises(SystemExit, match="which is no file"):
        fetch_headers.main(tmp_path / "third")  # a damaged cache is not used
    (tmp_path / "moved.tar.gz").rename(archive)
    fetch_headers.main(tmp_path / "third")
    assert (fetch_headers.cache_folder() / "llama.h").read_text() == "llama"  # and was put right
