"""`strata-tui models`: GGUF files on this machine."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import cache_dir, load_settings
from ..errors import UserError

if TYPE_CHECKING:
    from ..engine.gguf_info import GgufInfo

HELP = "List GGUF files of folders, or of the Hugging Face and llama.cpp caches."

_LATER_SHARD = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="*", metavar="FOLDER", type=Path, help="default: the caches")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from ..engine.gguf_info import read_info

    for folder in args.folders:
        if not folder.is_dir():
            raise UserError(f"There is no folder {folder}.")
    folders = args.folders or default_folders(load_settings().model)
    found: list[GgufInfo] = []
    for path in find_models(folders):
        try:
            found.append(read_info(path))
        except UserError as error:
            print(f"strata-tui: left out: {error}", file=sys.stderr)
    if args.json:
        import json

        print(json.dumps([_record(info) for info in found], ensure_ascii=False, indent=2))
        return 0
    if not found:
        print(f"No GGUF files in {', '.join(map(str, folders))}.", file=sys.stderr)
    for info in found:
        print(_line(info))
    return 0


def default_folders(model: Path | None) -> list[Path]:
    """Where models usually are: the caches of others, ours, and beside the settings' model."""
    home = Path.home()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    hub = os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or cache / "huggingface") / "hub"
    folders = [Path(hub), Path(os.environ.get("LLAMA_CACHE") or cache / "llama.cpp"), cache_dir()]
    if model is not None:
        folders.append(model.parent)
    return folders


def find_models(folders: Iterable[Path]) -> Iterator[Path]:
    """GGUF files below the folders, each file once, of a split model the first shard only."""
    seen: set[str] = set()
    for folder in folders:
        for root, subfolders, names in os.walk(folder):
            subfolders.sort()
            for name in sorted(names):
                path = Path(root, name)
                if name.endswith(".gguf") and not _LATER_SHARD.search(name) and path.is_file():
                    real = os.path.realpath(path)
                    if real not in seen:
                        seen.add(real)
                        yield path


def _line(info: GgufInfo) -> str:
    experts = f"{info.n_experts} experts, {info.n_experts_used} used" if info.n_experts else "dense"
    size = f"{info.file_bytes / 2**30:.2f} GiB"
    return f"{size:>11}  {info.architecture:<12} {info.quantization:<8} {experts:<24} {info.path}"


def _record(info: GgufInfo) -> dict[str, object]:
    names = (
        "name architecture quantization file_bytes trunk_bytes expert_bytes n_layers n_experts n_experts_used "
        "context_trained"
    )
    return {"path": str(info.path)} | {name: getattr(info, name) for name in names.split()}
