"""The binding of the extension to llama.cpp, and the choice of a device."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

import pytest

from strata_tui.engine import native
from strata_tui.engine.native import Binding, DeviceInfo, choose
from strata_tui.errors import UserError

GIB = 2**30
CPU = DeviceInfo("CPU", "Some CPU", "CPU", 8 * GIB, 16 * GIB)
SMALL = DeviceInfo("CUDA0", "Small Card", "GPU", 4 * GIB, 8 * GIB)
BIG = DeviceInfo("CUDA1", "Big Card", "GPU", 20 * GIB, 24 * GIB)
SHARED = DeviceInfo("CUDA2", "Card on the board", "IGPU", 5 * GIB, 16 * GIB)
VULKAN = DeviceInfo("Vulkan0", "Other Card", "GPU", 30 * GIB, 32 * GIB)
BLAS = DeviceInfo("BLAS", "Some BLAS", "ACCEL", 0, 0)

LOAD = """
import os, sys
from strata_tui.engine import native
from strata_tui.errors import UserError
try:
    native.load()
except UserError as error:
    print("refused:", error)
else:
    print("loaded", os.environ["OMP_WAIT_POLICY"])
"""


def load_elsewhere(
    path: Path | None = None, *, check: bool = True, **environment: str | None
) -> subprocess.CompletedProcess[str]:
    """Runs native.load() in a new process, with `path` before all other packages; None removes a variable."""
    env = {**os.environ, **environment}
    code = LOAD if path is None else f"import sys; sys.path.insert(0, {str(path)!r})\n{LOAD}"
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={name: value for name, value in env.items() if value is not None},
        capture_output=True,
        text=True,
        check=check,
    )


@pytest.fixture(scope="module")
def binding() -> Binding:
    core = native.load()
    return native._binding(import_module("llama_cpp"), core)


def test_what_is_installed_fits(binding: Binding) -> None:
    native.check(binding)
    assert binding.llama_decode_core != 0
    assert set(binding.structs_llama_cpp) == set(binding.structs_core)


def test_the_version_checked_is_the_version_required() -> None:
    required = [line for line in requires("strata-tui") or [] if line.startswith("llama-cpp-python")]
    assert [line.replace(" ", "") for line in required] == [f"llama-cpp-python=={native.LLAMA_CPP_PYTHON}"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"llama_cpp_python": "0.3.35"}, "llama-cpp-python 0.3.35 is installed"),
        ({"ggml_loaded": "0.25.4"}, "ggml is version 0.25.4 where"),
        ({"api_loaded": 99}, "speaks version 99 of the backend interface"),
        ({"llama_decode_core": 16}, "Two copies of libllama"),
        ({"structs_core": {"llama_model_params": 80, "llama_context_params": 1, "llama_batch": 56}}, "struct llama_"),
        ({"structs_core": {}}, "and None in strata-tui"),
    ],
)
def test_each_difference_is_refused_in_one_sentence(binding: Binding, change: dict[str, object], said: str) -> None:
    with pytest.raises(UserError) as refusal:
        native.check(replace(binding, **change))
    message = str(refusal.value)
    assert said in message
    assert message.endswith(".")
    assert "\n" not in message


def test_openmp_threads_are_passive_when_openmp_starts() -> None:
    # OpenMP itself prints the policy that it took when it was loaded
    run = load_elsewhere(OMP_WAIT_POLICY=None, OMP_DISPLAY_ENV="true")
    assert run.stdout.split() == ["loaded", "passive"]
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in run.stderr


def test_a_policy_that_was_chosen_is_kept() -> None:
    run = load_elsewhere(OMP_WAIT_POLICY="active", OMP_DISPLAY_ENV="true")
    assert run.stdout.split() == ["loaded", "active"]
    assert "OMP_WAIT_POLICY = 'ACTIVE'" in run.stderr


def test_another_llama_cpp_python_is_refused_before_the_extension_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "llama_cpp.py").write_text("__version__ = '0.2.90'\n")
    run = load_elsewhere(tmp_path)
    assert run.stdout.startswith("refused: llama-cpp-python 0.2.90 is installed where")


def test_llama_cpp_python_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    (tmp_path / "llama_cpp.py").write_text("import ctypes\nctypes.CDLL('/nonexistent/libllama.so')\n")
    run = load_elsewhere(tmp_path)
    assert run.stdout.startswith("refused: llama-cpp-python cannot be loaded (/nonexistent/libllama.so")


def test_the_source_folder_without_the_extension_is_refused(tmp_path: Path) -> None:
    package = Path(native.__file__).parents[1]
    for name in ("__init__.py", "errors.py", "engine/__init__.py", "engine/native.py"):
        target = tmp_path / "strata_tui" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(package / name, target)
    run = load_elsewhere(tmp_path)
    assert run.stdout.startswith("refused: The extension of strata-tui cannot be loaded (")
    assert "pip install ." in run.stdout


def test_a_second_libllama_is_refused(tmp_path: Path) -> None:
    spec = find_spec("llama_cpp")
    assert spec is not None
    assert spec.origin is not None
    libraries = Path(spec.origin).parent / "lib"
    other = shutil.copy(libraries / "libllama.so.0", tmp_path)  # another file, so another copy in memory
    # not check=True: with two copies in it the process may well crash at its end, after it was refused
    run = load_elsewhere(check=False, LD_PRELOAD=str(other), LD_LIBRARY_PATH=str(libraries))
    assert run.stdout.startswith("refused: Two copies of libllama are loaded")


@pytest.mark.parametrize(
    ("found", "gpu", "name"),
    [
        ([CPU], None, "CPU"),
        ([BLAS, CPU], None, "CPU"),
        ([SMALL, BIG, SHARED, CPU], None, "CUDA1"),
        ([BIG, replace(BIG, name="CUDA0"), CPU], None, "CUDA1"),
        ([SMALL, BIG, CPU], 0, "CUDA0"),
        ([SMALL, BIG, SHARED, CPU], 2, "CUDA2"),
        ([SMALL, BIG, CPU], -1, "CPU"),
        ([VULKAN, SMALL, CPU], None, "CUDA0"),
        ([VULKAN, SMALL, CPU], 0, "CUDA0"),
    ],
)
def test_choice_of_a_device(found: list[DeviceInfo], gpu: int | None, name: str) -> None:
    assert choose(found, gpu) == name


@pytest.mark.parametrize(
    ("found", "gpu", "said"),
    [
        ([CPU], 0, "There is no CUDA card 0: no CUDA card was found, so choose -1 for the CPU."),
        ([SMALL, BIG, CPU], 2, "There is no CUDA card 2: choose one of 0 (Small Card), 1 (Big Card), or -1 for"),
        ([SMALL, CPU], -2, "There is no CUDA card -2"),
        ([VULKAN, CPU], 0, "Device 0 is Vulkan0 (Other Card), and strata-tui runs on CUDA cards and the CPU only"),
        ([VULKAN, CPU], 1, "There is no CUDA card 1"),
        ([BLAS], None, "no CPU device"),
        ([SMALL], -1, "no CPU device"),
    ],
)
def test_a_device_that_cannot_be_used_is_refused(found: list[DeviceInfo], gpu: int | None, said: str) -> None:
    with pytest.raises(UserError) as refusal:
        choose(found, gpu)
    assert said in str(refusal.value)


def test_the_cpu_of_this_machine_can_be_picked() -> None:
    assert native.pick_device(-1) == "CPU"
    cpu = next(device for device in native.devices() if device.name == "CPU")
    assert cpu.type == "CPU"
    assert cpu.total > 0


def test_an_index_that_does_not_exist_is_refused_here() -> None:
    with pytest.raises(UserError, match="There is no CUDA card 1000"):
        native.pick_device(1000)


def test_notice_agrees_with_what_is_here() -> None:
    usable = any(device.cuda_index is not None for device in native.devices())
    assert (native.gpu_notice() is None) == (usable or not native.nvidia_gpus())


def test_notice_names_the_card_and_the_line_that_mends_it() -> None:
    said = native.notice_for("NVIDIA Some Card", built_with_cuda=False)
    assert said.startswith("NVIDIA Some Card is present but")
    assert said.endswith(native.CUDA_BUILD)
    assert f"llama-cpp-python=={native.LLAMA_CPP_PYTHON}" in native.CUDA_BUILD
    assert "CUDA_VISIBLE_DEVICES" in native.notice_for("NVIDIA Some Card", built_with_cuda=True)


@pytest.mark.gpu
def test_a_card_is_picked_where_there_is_one() -> None:
    name = native.pick_device(None)
    assert name.startswith("CUDA")
    assert native.pick_device(int(name.removeprefix("CUDA"))) == name
    assert native.gpu_notice() is None
