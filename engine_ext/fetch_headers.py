"""Build step: puts the private headers of ggml and llama.cpp, and strata_versions.h, into a folder.

    python fetch_headers.py FOLDER

The headers come from the source archive of the one llama-cpp-python release that this extension works with,
recognised by its SHA-256. They are looked for, in this order, in

1. the archive named by the environment variable STRATA_LLAMA_SDIST (refused when it is another archive),
2. our cache folder, keyed by that hash,
3. a package index, through pip, with pip's own settings. pip reads the archive's metadata and compiles nothing.

Only the standard library is used: this runs in the isolated build environment.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

VERSION = "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
ROOT = f"llama_cpp_python-{VERSION}/vendor/llama.cpp"
HEADER_FOLDERS = (f"{ROOT}/ggml/include", f"{ROOT}/ggml/src", f"{ROOT}/include")
GGML_CMAKE = f"{ROOT}/ggml/CMakeLists.txt"
VERSIONS_HEADER = "strata_versions.h"
COMPLETE = "complete.sha256"  # written last: names every header of a cached folder with its hash


def cache_folder() -> Path | None:
    """Where headers are kept between builds; None where there is no home folder."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    except RuntimeError:
        return None
    return root / "strata-tui" / "headers" / SHA256


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def manifest(folder: Path) -> str:
    return "".join(f"{sha256_of(path)}  {path.name}\n" for path in sorted(folder.glob("*.h")))


def is_complete(folder: Path) -> bool:
    """Whether every header is there as it was written."""
    try:
        return (folder / COMPLETE).read_text() == manifest(folder)
    except OSError:
        return False


def versions_header(ggml_cmake: str) -> str:
    """The text of strata_versions.h; raises ValueError where ggml's version is not found."""
    parts = [re.search(rf"set\(GGML_VERSION_{part}\s+(\d+)\)", ggml_cmake) for part in ("MAJOR", "MINOR", "PATCH")]
    if None in parts:
        raise ValueError(f"{GGML_CMAKE} does not set ggml's version in the expected form")
    ggml = ".".join(match[1] for match in parts if match)
    return (
        "/* Written by fetch_headers.py: the versions that the headers beside it belong to. */\n"
        "#pragma once\n"
        f'#define STRATA_GGML_VERSION "{ggml}"\n'
        f'#define STRATA_LLAMA_CPP_PYTHON_VERSION "{VERSION}"\n'
    )


def extract(archive: Path, folder: Path) -> None:
    """Takes the headers out of `archive` into the new, flat `folder`."""
    folder.mkdir(parents=True)
    with tarfile.open(archive) as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            wanted = path.suffix == ".h" and str(path.parent) in HEADER_FOLDERS
            if not (member.isfile() and (wanted or member.name == GGML_CMAKE)):
                continue
            file = tar.extractfile(member)
            assert file is not None  # it is a plain file
            data = file.read()
            if wanted:
                with (folder / path.name).open("xb") as out:  # x: two headers of one name would hide each other
                    out.write(data)
            else:
                (folder / VERSIONS_HEADER).write_text(versions_header(data.decode()))
    for name in ("ggml-backend-impl.h", "ggml-impl.h", "llama.h", VERSIONS_HEADER):
        if not (folder / name).is_file():
            raise ValueError(f"{archive} holds no {name}")
    (folder / COMPLETE).write_text(manifest(folder))


def download(folder: Path) -> Path:
    """Downloads the archive with pip, which checks its hash."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"llama-cpp-python=={VERSION} --hash=sha256:{SHA256}\n")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    command += ["--no-deps", "--no-build-isolation", "--no-binary", "llama-cpp-python"]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    if subprocess.run(command).returncode != 0:
        raise SystemExit(
            f"error: pip could not download the source archive of llama-cpp-python {VERSION} (its message is above); "
            "name a copy of that archive in the environment variable STRATA_LLAMA_SDIST to build without a network"
        )
    archives = list(folder.glob("*.tar.gz"))
    if len(archives) != 1:
        raise SystemExit(f"error: pip left {len(archives)} archives in place of 1 when asked for llama-cpp-python")
    return archives[0]


def find_archive(scratch: Path) -> Path:
    """The archive named by the person, else a fresh download. Its hash is right."""
    named = os.environ.get("STRATA_LLAMA_SDIST", "")
    archive = Path(named) if named else download(scratch)
    if not archive.is_file():
        raise SystemExit(f"error: STRATA_LLAMA_SDIST names {archive}, which is no file")
    if sha256_of(archive) != SHA256:
        raise SystemExit(f"error: {archive} is not the source archive of llama-cpp-python {VERSION} (SHA-256 {SHA256})")
    return archive


def keep(folder: Path, cache: Path) -> None:
    """Copies `folder` to `cache` in one step, so that builds side by side never see half of it."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=cache.parent))
    try:
        shutil.copytree(folder, scratch / "new")
        if cache.exists():  # incomplete, or we would not be here
            cache.rename(scratch / "old")
        (scratch / "new").rename(cache)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def main(target: Path) -> None:
    if is_complete(target):
        return
    shutil.rmtree(target, ignore_errors=True)
    cache = cache_folder()
    if cache is not None and is_complete(cache) and not os.environ.get("STRATA_LLAMA_SDIST"):
        shutil.copytree(cache, target)
        print(f"headers of llama-cpp-python {VERSION}: from {cache}")
        return
    with tempfile.TemporaryDirectory() as scratch:
        extract(find_archive(Path(scratch)), target)
    print(f"headers of llama-cpp-python {VERSION}: from its source archive")
    if cache is not None:
        try:
            keep(target, cache)
        except OSError as error:  # a build needs no cache; another build may also have been first
            print(f"headers not kept for the next build: {error}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: fetch_headers.py FOLDER")
    main(Path(sys.argv[1]))
