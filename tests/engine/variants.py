"""Variants of the C extension: built from the sources with other definitions or with a guard taken out, and run in
a process of their own in place of `strata_tui.engine._core`.

As a program: `python variants.py EXTENSION`, with a list of runs (JSON) on stdin; prints their outcomes.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from strata_tui.engine.llama import Logits, LowLevel

ENGINE_EXT = Path(__file__).resolve().parents[2] / "engine_ext"
LIBRARIES = ("libggml-base.so.0", "libggml.so.0", "libllama.so.0")
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-DPy_LIMITED_API=0x030B0000", "-O1", "-g", "-fPIC", "-fvisibility=hidden")
CANCELS = 3


# Building


def missing() -> str | None:
    """Why no variant can be built here, or None."""
    if compiler() is None:
        return "there is no C compiler"
    include = sysconfig.get_paths()["include"]
    return None if Path(include, "Python.h").is_file() else f"there is no Python.h in {include}"


def compiler() -> str | None:
    return shutil.which(os.environ.get("CC", "cc"))


@dataclass(frozen=True)
class Mutation:
    """In `part`.c each `old` text, which stands there once, becomes `new`."""

    part: str
    edits: tuple[tuple[str, str], ...]

    def applied(self) -> str:
        text = (ENGINE_EXT / f"{self.part}.c").read_text()
        for old, new in self.edits:
            if text.count(old) != 1:
                raise LookupError(f"{self.part}.c has `{old}` {text.count(old)} times where a mutation wants it once")
            text = text.replace(old, new)
        return text


class Builder:
    """Builds variants in `folder`. An object file is compiled once for each set of definitions."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._headers = folder / "headers"
        self._objects: dict[tuple[str, ...], dict[str, Path]] = {}
        self._built = 0
        _call([sys.executable, str(ENGINE_EXT / "fetch_headers.py"), str(self._headers)])

    def build(self, mutation: Mutation | None = None, definitions: tuple[str, ...] = ()) -> Path:
        """The path of an extension with `definitions` ("ST_POISON") and without what `mutation` takes out."""
        if definitions not in self._objects:
            # transport_sim.c is of the tests of the pure parts and not in the extension
            sources = [source for source in sorted(ENGINE_EXT.glob("*.c")) if source.stem != "transport_sim"]
            with ThreadPoolExecutor(2) as pool:
                compiled = pool.map(lambda source: self._compile(source, definitions, self._new_folder()), sources)
                self._objects[definitions] = {o.stem: o for o in compiled}
        objects = dict(self._objects[definitions])
        target = self._new_folder()
        if mutation is not None:
            source = target / f"{mutation.part}.c"
            source.write_text(mutation.applied())
            objects[mutation.part] = self._compile(source, definitions, target)
        out = target / "_core.abi3.so"
        # As in CMakeLists.txt: the SONAMEs are asked for and no path, so that the loader takes what llama_cpp loaded.
        links = ["-Wl,--no-as-needed", "-Wl,-z,now", f"-L{_llama_cpp() / 'lib'}", *(f"-l:{name}" for name in LIBRARIES)]
        _call([str(compiler()), "-shared", *map(str, objects.values()), "-o", str(out), *links, "-ldl", "-lpthread"])
        return out

    def _new_folder(self) -> Path:
        self._built += 1
        folder = self._folder / f"{self._built:03}"
        folder.mkdir()
        return folder

    def _compile(self, source: Path, definitions: tuple[str, ...], target: Path) -> Path:
        out = target / f"{source.stem}.o"
        includes = [f"-I{ENGINE_EXT}"]
        for folder in (self._headers, sysconfig.get_paths()["include"]):
            includes += ["-isystem", str(folder)]
        defined = [f"-D{name}" for name in definitions]
        _call([str(compiler()), *FLAGS, *defined, *includes, "-c", str(source), "-o", str(out)])
        return out


def _llama_cpp() -> Path:
    found = importlib.util.find_spec("llama_cpp")  # imports nothing
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def _call(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


# Running


@dataclass(frozen=True)
class Run:
    """A model opened with the tier on the CPU device and played through. `workload`: see `play`.

    `mirror` in bytes, `delay` and `compute_delay` (means, of a copy and of work on the compute thread, which there is
    only with such a delay) in microseconds. Batches of at least `stream_from` tokens stream through a ring of `units`.
    """

    model: str
    slots: int
    prompt: int
    decoded: int
    workload: str = "decode"
    pool: int = 2
    delay: int = 300
    mirror: int = 0
    repeat: int = 1  # of each decoded token
    context: int = 256
    compute_delay: int = 0
    stream_from: int = 0  # 0: never
    units: float = 2
    own: bool = False  # the ring's memory, else lent slots


@dataclass(frozen=True)
class Outcome:
    """What came of a run. `hashes` of the logits, one for each time that the tokens were read; `verify`: what the
    tier's own check said, "" when all was right."""

    hashes: list[str]
    nan: bool
    verify: str
    evictions: int
    swaps: int
    streamed: int


def read(model: LowLevel, prompt: int, decoded: int, repeat: int = 1) -> Iterator[Logits]:
    """Reads `prompt` random tokens at once, then `decoded` one by one, each `repeat` times; the logits after each:
    (n, n_vocab)."""
    model.clear()
    rng = np.random.default_rng(prompt)
    tokens = [int(t) for t in rng.integers(3, model.model.n_vocab, prompt + decoded)]
    yield model.decode(tokens[:prompt], all_logits=True)
    for token in tokens[prompt:]:
        for _ in range(repeat):
            yield model.decode([token])[None]


def hash_of(logits: Logits) -> str:
    return hashlib.sha256(logits.tobytes()).hexdigest()


def play(model: LowLevel, run: Run) -> list[Logits]:
    """The logits of a workload: "decode" reads the tokens, "prefill" fills the slots and reads them, "cancel" reads
    them after each of some aborted attempts, "swaps" reads them with the adaptive tier."""
    from strata_tui.engine import native

    core, tier = native.load(), model.tier
    assert tier is not None
    if run.workload == "decode":
        return [np.concatenate(list(read(model, run.prompt, run.decoded, run.repeat)))]
    if run.workload == "prefill":
        tier.prefill()
        return [np.concatenate(list(read(model, run.prompt, run.decoded, run.repeat)))]
    if run.workload == "cancel":
        logits = []
        for _ in range(CANCELS):
            _abort_while_loading(model, run.prompt)
            logits.append(np.concatenate(list(read(model, run.prompt, run.decoded, run.repeat))))
        return logits
    assert run.workload == "swaps"
    tier.set_policy(core.POLICY_ADAPTIVE)
    rows = []
    for row in read(model, run.prompt, run.decoded, run.repeat):
        rows.append(row)
        tier.set_phase(core.PHASE_DECODE)
    return [np.concatenate(rows)]


def _abort_while_loading(model: LowLevel, prompt: int) -> None:
    """Reads the prompt, and tries again until it was aborted after its first router ran."""
    tier = model.tier
    assert tier is not None
    over = False

    def cancel(cuts: int) -> None:
        while not over and tier.counters()["prompt"]["cuts"] == cuts:
            time.sleep(0.001)
        time.sleep(0.005)
        tier.cancel(True)

    while True:
        over = False
        thread = threading.Thread(target=cancel, args=(tier.counters()["prompt"]["cuts"],))
        thread.start()
        try:
            next(read(model, prompt, 0))
        except RuntimeError as error:
            if not str(error).startswith("llama_decode returned 2"):  # aborted
                raise
            return
        finally:
            over = True
            thread.join()
            tier.cancel(False)


def outcome(run: Run) -> Outcome:
    from strata_tui.engine import native
    from strata_tui.engine.llama import LowLevel

    with LowLevel(
        Path(run.model),
        slots=run.slots,
        context=run.context,
        pool_buffers=run.pool,
        copy_delay_us=run.delay,
        compute_delay_us=run.compute_delay,
        copy_seed=5,
        mirror=run.mirror,
        stream=(run.stream_from, run.units, run.own) if run.stream_from else None,
    ) as model:
        tier = model.tier
        assert tier is not None
        logits = play(model, run)
        counters = tier.counters()
        verify = ""
        try:
            tier.verify(1000, 1)
        except native.load().Error as error:
            verify = str(error)
        return Outcome(
            hashes=[hash_of(part) for part in logits],
            nan=any(bool(np.isnan(part).any()) for part in logits),
            verify=verify,
            evictions=sum(phase["evictions"] for phase in counters.values()),
            swaps=tier.swaps()["swaps"],
            streamed=sum(phase["streamed"] for phase in counters.values()),
        )


def outcomes(extension: Path, runs: Sequence[Run]) -> list[Outcome]:
    """What comes of each run, all in one new process with `extension`."""
    asked = json.dumps([asdict(run) for run in runs])
    done = subprocess.run([sys.executable, __file__, str(extension)], input=asked, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{runs} with {extension} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return [Outcome(**values) for values in json.loads(done.stdout.splitlines()[-1])]


def main(extension: str) -> None:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import llama_cpp  # noqa: F401 (its libraries are loaded before the extension that wants them)

    import strata_tui.engine

    name = "strata_tui.engine._core"
    spec = importlib.util.spec_from_file_location(name, extension)
    assert spec is not None and spec.loader is not None
    core = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(core)
    sys.modules[name] = core
    strata_tui.engine._core = core  # type: ignore[attr-defined]
    from strata_tui.engine import native

    assert native.load() is core
    runs = [Run(**values) for values in json.load(sys.stdin)]
    print(json.dumps([asdict(outcome(run)) for run in runs]))


if __name__ == "__main__":
    main(sys.argv[1])
