"""Compiles and runs the C test programs of the engine's pure parts, which need neither ggml nor a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENGINE_EXT = HERE.parents[1] / "engine_ext"
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-g", "-pthread"]
VARIANTS: dict[str, list[str]] = {
    "plain": ["-O2"],
    "address+undefined": ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-O1", "-fsanitize=thread"],
}


@dataclass(frozen=True)
class Program:
    """A test program: its main file, the parts that it tests, what it takes the place of, and its steps a variant."""

    name: str
    parts: tuple[str, ...]
    steps: dict[str, int]
    wrapped: tuple[str, ...] = ()
    excerpts: tuple[tuple[str, tuple[str, ...]], ...] = ()  # of parts that know ggml: what their excerpts begin with

    @property
    def sources(self) -> list[str]:
        return [f"{part}.c" for part in self.parts]


def _steps(plain: int, address: int, thread: int) -> dict[str, int]:
    return dict(zip(VARIANTS, (plain, address, thread), strict=True))


PROGRAMS = {
    p.name: p
    for p in (
        Program("test_transport_sim", ("transport_sim",), _steps(500, 200, 100)),
        Program("test_residency", ("residency",), _steps(4_000_000, 1_000_000, 500_000)),
        Program("test_adapt", ("adapt", "residency"), _steps(40_000, 10_000, 5_000)),
        Program("test_window", ("window", "residency"), _steps(40_000, 10_000, 5_000)),
        Program("test_stage", ("stage", "transport_sim"), _steps(4_000_000, 1_000_000, 300_000)),
        Program("test_source", ("source",), _steps(4_000, 2_000, 1_000), ("pread", "preadv2")),
        Program("test_pace", ("pace",), _steps(200, 100, 50)),
        Program("test_ring", ("ring", "transport_sim"), _steps(2_000_000, 300_000, 100_000)),
        Program("test_stager", ("stager", "pace"), _steps(30_000, 10_000, 4_000), ("pthread_create",)),
        Program(
            "test_flow",
            (
                *("load", "fill", "policy", "prefill", "selftest", "pool", "mirror", "prompt", "unit", "lend"),
                *("ring", "stage", "stager", "pace", "residency", "adapt", "window", "transport_sim"),
            ),
            _steps(30_000, 15_000, 4_000),
            excerpts=(
                ("tier", ("int st_fail(", "void st_error_clear(", "void st_tier_close(")),
                (
                    "graph",
                    (
                        "int st_backend_init(",
                        "void st_backend_free(",
                        "static int change_stream(",
                        "int st_make_resident(",
                        "int32_t st_guests(",
                        "int32_t st_room(",
                        "static bool is_expert_tensor(",
                        "int st_reads_experts(",
                        "bool st_ids_known(",
                        "int st_grow(",
                        "enum ggml_status st_sync(",
                        "enum ggml_status st_status(",
                    ),
                ),
            ),
        ),
        Program(
            "test_transport_thread",
            ("transport_thread",),
            _steps(200_000, 50_000, 30_000),
            ("malloc", "calloc", "aligned_alloc", "pthread_create"),
        ),
        Program("test_transport_compute", ("transport_thread",), _steps(40_000, 15_000, 8_000)),
    )
}


def compiler() -> str | None:
    """The system's C compiler, or None."""
    return shutil.which(os.environ.get("CC", "cc"))


def write_excerpts(program: Program, target: Path, changed: dict[str, str] | None = None) -> None:
    """Cuts the program's excerpts out of their parts, unchanged (or out of the `changed` text of a part), into
    `excerpts.h`: whole definitions, so that what is tested is what ships."""
    text = ["#include <assert.h>", "#include <stdarg.h>", "#include <stdio.h>", "#include <stdlib.h>"]
    for part, beginnings in program.excerpts:
        lines = (changed or {}).get(part, (ENGINE_EXT / f"{part}.c").read_text()).splitlines()
        for beginning in beginnings:
            starts = [i for i, line in enumerate(lines) if line.startswith(beginning)]
            if len(starts) != 1:
                raise LookupError(f"{part}.c has {len(starts)} definitions that begin with `{beginning}`")
            end = next(i for i in range(starts[0], len(lines)) if lines[i] in ("}", "};"))
            text += [f'#line {starts[0] + 1} "{part}.c"', *lines[starts[0] : end + 1]]
    (target / "excerpts.h").write_text("\n".join(text) + "\n")


def compile_objects(cc: str, sources: list[Path], flags: list[str], target: Path) -> list[Path]:
    """Compiles C files to object files in `target`; raises with the compiler's words when one does not compile."""
    objects = []
    for source in sources:
        out = target / f"{source.stem}.o"
        includes = [f"-I{folder}" for folder in (target, source.parent, ENGINE_EXT, HERE / "shim", HERE)]
        _call([cc, *flags, *includes, "-c", str(source), "-o", str(out)])
        objects.append(out)
    return objects


def link(cc: str, program: Program, objects: list[Path], flags: list[str], target: Path) -> Path:
    """Links a test program and returns its path."""
    out = target / program.name
    wraps = [f"-Wl,--wrap={name}" for name in program.wrapped]
    _call([cc, *flags, *wraps, *map(str, objects), "-o", str(out)])
    return out


def build(cc: str, program: Program, variant: str, target: Path) -> Path:
    """Compiles and links one program in one variant."""
    flags = [*FLAGS, *VARIANTS[variant]]
    write_excerpts(program, target)
    sources = [HERE / f"{program.name}.c", *(ENGINE_EXT / name for name in program.sources)]
    return link(cc, program, compile_objects(cc, sources, flags, target), flags, target)


def run(binary: Path, seed: int, steps: int, *more: str, seconds: int = 100) -> subprocess.CompletedProcess[str]:
    """Runs a test program; `seconds` is when it counts as hanging (it then ends itself with a named check)."""
    return subprocess.run([str(binary), str(seed), str(steps), str(seconds), *more], capture_output=True, text=True)


def missing(cc: str, variant: str) -> str | None:
    """Why programs of this variant cannot be built or run here, or None when they can."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.c"
        source.write_text("int main(void) { return 0; }\n")
        binary = Path(folder) / "empty"
        built = subprocess.run(
            [cc, "-pthread", *VARIANTS[variant], str(source), "-o", str(binary)], capture_output=True, text=True
        )
        if built.returncode != 0:
            return f"{cc} cannot link {' '.join(VARIANTS[variant])}: {built.stderr.strip()[-300:]}"
        started = subprocess.run([str(binary)], capture_output=True, text=True)
        if started.returncode != 0:
            return f"a program built with {' '.join(VARIANTS[variant])} does not start: {started.stderr.strip()[-300:]}"
    return None


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
