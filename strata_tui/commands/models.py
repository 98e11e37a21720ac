"""`strata-tui models`: GGUF files on this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import load_given
from ..errors import UserError

if TYPE_CHECKING:
    from ..catalog.scan import Found
    from ..engine.gguf_info import GgufInfo
    from ..engine.options import EngineOptions

HELP = "List the models of folders, or of all the usual places."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folders",
        nargs="*",
        metavar="FOLDER",
        type=Path,
        help="default: the folders of the settings, of Hugging Face, llama.cpp, LM Studio and Ollama",
    )
    parser.add_argument("--json", action="store_true", help="as JSON, with those that cannot be used")
    parser.add_argument("--plan", action="store_true", help="with what the memory plan would be here")


def run(args: argparse.Namespace) -> int:
    from ..catalog.places import Kind, Place, places
    from ..catalog.scan import scan

    for folder in args.folders:
        if not folder.is_dir():
            raise UserError(f"There is no folder {folder}.")
    given = load_given()
    settings = given.settings
    where = [Place(Kind.OWN, folder) for folder in args.folders]
    where = where or places(given.sections.folders, settings.model)
    planned = Planned(settings.engine_options()) if args.plan else None
    found = list(scan(where))
    if args.json:
        import json

        print(json.dumps([_record(one, planned) for one in found], ensure_ascii=False, indent=2))
        return 0
    for one in found:
        if one.info is None:
            print(f"strata-tui: left out: {one.problem}", file=sys.stderr)
        else:
            print(_line(one, one.info, planned))
    if not any(one.info for one in found):
        print(f"No GGUF files in {', '.join(str(place.folder) for place in where)}.", file=sys.stderr)
    return 0


class Planned:
    """The memory plans of models, on this machine as it is now."""

    def __init__(self, options: EngineOptions) -> None:
        from ..catalog.estimate import machine

        self._options = options
        self._machine = machine(options)

    def text(self, info: GgufInfo) -> str:
        """Slots and context, or that it does not fit."""
        record = self.record(info)
        if "problem" in record:
            return "does not fit"
        slots = f"{record['slots']} of {record['experts']} slots, " if record["experts"] else ""
        return f"{slots}{record['context']} ctx"

    def record(self, info: GgufInfo) -> dict[str, object]:
        """The plan's numbers, or why there is none."""
        from ..catalog.estimate import estimate

        try:
            plan = estimate(info, self._machine, self._options)
        except UserError as error:
            return {"problem": str(error)}
        return {
            "slots": plan.slots,
            "experts": plan.n_experts,
            "context": plan.context,
            "bytes": info.trunk_bytes + plan.kv + plan.compute + plan.arena,
            "usable": plan.usable,
        }


def _line(found: Found, info: GgufInfo, planned: Planned | None) -> str:
    experts = f"{info.n_experts} experts, {info.n_experts_used} used" if info.n_experts else "dense"
    size = f"{info.file_bytes / 2**30:.2f} GiB"
    plan = f"{planned.text(info):<34} " if planned else ""
    return f"{size:>11}  {info.architecture:<12} {info.quantization:<8} {experts:<24} {plan}{found.path}"


def _record(found: Found, planned: Planned | None) -> dict[str, object]:
    record: dict[str, object] = {"path": str(found.path), "place": found.kind.value, "called": found.name}
    if found.info is None:
        return record | {"problem": found.problem}
    names = (
        "name architecture quantization file_bytes trunk_bytes expert_bytes n_layers n_experts n_experts_used "
        "context_trained"
    )
    record |= {name: getattr(found.info, name) for name in names.split()}
    return record | ({"plan": planned.record(found.info)} if planned else {})
