"""Removes one guard of the pure parts at a time and shows which named check of the test programs fails for it.

Prints a line for each guard. Ends with 1 when a guard can be removed and no check notices, or when it is noticed
by another check than the one that stands for it.
"""

from __future__ import annotations

import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import guards_flow
import guards_slots
import guards_stream
import guards_threads
import guards_window
import pure_parts
from guards import Guard

GUARDS = [
    *guards_slots.GUARDS,
    *guards_window.GUARDS,
    *guards_stream.GUARDS,
    *guards_flow.GUARDS,
    *guards_threads.GUARDS,
]
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-g", "-O0", "-pthread"]  # no -Werror: what lost its use may stay behind
STEPS = {
    "test_residency": 50_000,
    "test_adapt": 5_000,
    "test_window": 5_000,
    "test_stage": 200_000,
    "test_source": 1_000,
    "test_pace": 20,
    "test_ring": 100_000,
    "test_stager": 2_000,
    "test_flow": 20_000,
    "test_transport_thread": 20_000,
    "test_transport_compute": 5_000,
}
SEEDS = range(1, 9)  # tried in turn until the named check fails
FAILED = re.compile(r"check failed: (.+?): |transport_sim: (\w+)|Assertion `(.+?)' failed")


def mutated(guard: Guard) -> str:
    """The part's text without the guard."""
    text = (pure_parts.ENGINE_EXT / f"{guard.part}.c").read_text()
    places = [m.start() for m in re.finditer(re.escape(guard.old), text)]
    if guard.nth >= len(places):
        raise LookupError(f"{guard.part}.c has no `{guard.old}` to remove (guard: {guard.what})")
    at = places[guard.nth]
    return text[:at] + guard.new + text[at + len(guard.old) :]


def failed_check(stderr: str) -> str | None:
    """The name of the check that failed first, or None."""
    found = FAILED.search(stderr)
    return next(group for group in found.groups() if group) if found else None


def objects_of(cc: str, program: pure_parts.Program, folder: Path) -> dict[str, Path]:
    """The program's object files by their part's name, built once."""
    folder.mkdir()
    pure_parts.write_excerpts(program, folder)
    sources = [pure_parts.HERE / f"{program.name}.c", *(pure_parts.ENGINE_EXT / name for name in program.sources)]
    return {o.stem: o for o in pure_parts.compile_objects(cc, sources, FLAGS, folder)}


def try_guard(cc: str, guard: Guard, objects: dict[str, Path], folder: Path) -> str | None:
    """Runs the program without the guard. Returns what is wrong with the outcome, or None; prints the outcome."""
    folder.mkdir()
    program = pure_parts.PROGRAMS[guard.program]
    changed = mutated(guard)
    if guard.part in program.parts:
        source = folder / f"{guard.part}.c"
        source.write_text(changed)
    else:
        source = pure_parts.HERE / f"{program.name}.c"
        pure_parts.write_excerpts(program, folder, {guard.part: changed})
    (mutant,) = pure_parts.compile_objects(cc, [source], FLAGS, folder)
    linked = [mutant if part == source.stem else o for part, o in objects.items()]
    binary = pure_parts.link(cc, program, linked, FLAGS, folder)
    outcome = "passes"
    for seed in SEEDS:  # which check is the first to notice depends on the threads, too
        done = pure_parts.run(binary, seed, STEPS[guard.program], seconds=guard.seconds)
        check = failed_check(done.stderr)
        fine = done.returncode != 0 and check in guard.checks
        if fine:
            break
        if done.returncode != 0:
            outcome = check or f"exit {done.returncode}, no check failed"
    outcome = check if fine and check else outcome
    print(f"{'ok  ' if fine else 'FAIL'} {guard.part}.c: {guard.what}: {outcome}")
    return None if fine else guard.what


def main() -> int:
    cc = pure_parts.compiler()
    if cc is None:
        print("there is no C compiler", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(3) as pool:
        folder = Path(name)
        compiled = pool.map(lambda p: objects_of(cc, pure_parts.PROGRAMS[p], folder / p), STEPS)
        built = dict(zip(STEPS, compiled, strict=True))
        for program, objects in built.items():  # without a mutation all is well, so it is the mutation that fails
            binary = pure_parts.link(cc, pure_parts.PROGRAMS[program], list(objects.values()), FLAGS, folder / program)
            done = pure_parts.run(binary, 1, STEPS[program])
            if done.returncode != 0:
                print(f"{program} fails without any mutation:\n{done.stderr}", file=sys.stderr)
                return 1
        wrong = list(
            pool.map(lambda i: try_guard(cc, GUARDS[i], built[GUARDS[i].program], folder / f"m{i}"), range(len(GUARDS)))
        )
    left = [what for what in wrong if what is not None]
    print(f"{len(GUARDS) - len(left)} of {len(GUARDS)} guards are shown to be needed")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
