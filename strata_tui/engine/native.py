"""The door to native code: loads llama.cpp and our extension in the right order, and checks that they fit.

The extension was compiled against the private headers of one exact llama-cpp-python. Everything that would
make it read foreign structs is refused here, before anything else native is called.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from strata_tui.errors import UserError

LLAMA_CPP_PYTHON = "0.3.36"  # also in pyproject.toml and engine_ext/fetch_headers.py
CUDA_BUILD = (
    'CMAKE_ARGS="-DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native" pip install --force-reinstall --no-deps '
    f"--no-cache-dir --no-binary llama-cpp-python llama-cpp-python=={LLAMA_CPP_PYTHON}"
)
_REINSTALL = f"reinstall strata-tui, which brings llama-cpp-python {LLAMA_CPP_PYTHON}"
_CUDA_NAME = re.compile(r"CUDA(\d+)")


@dataclass(frozen=True, slots=True)
class Binding:
    """What the extension was built with, beside what is loaded in this process. Sizes in bytes."""

    llama_cpp_python: str  # version that `import llama_cpp` found
    ggml_built: str
    ggml_loaded: str
    api_built: int  # GGML_BACKEND_API_VERSION
    api_loaded: int  # api_version of the loaded backends' registry
    llama_decode_core: int  # address of llama_decode as the extension sees it
    llama_decode_llama_cpp: int  # ... and as llama_cpp sees it
    structs_core: Mapping[str, int]
    structs_llama_cpp: Mapping[str, int]


def check_version(found: str) -> None:
    """Refuses, with UserError, any llama-cpp-python but the one the extension is written for."""
    if found != LLAMA_CPP_PYTHON:
        raise UserError(
            f"llama-cpp-python {found} is installed where strata-tui needs exactly {LLAMA_CPP_PYTHON}: {_REINSTALL}."
        )


def check(binding: Binding) -> None:
    """Raises UserError, one sentence, at the first thing that does not fit."""
    check_version(binding.llama_cpp_python)
    if binding.ggml_loaded != binding.ggml_built:
        raise UserError(
            f"The loaded ggml is version {binding.ggml_loaded} where strata-tui was built for "
            f"{binding.ggml_built}: {_REINSTALL}."
        )
    if binding.api_loaded != binding.api_built:
        raise UserError(
            f"The loaded ggml speaks version {binding.api_loaded} of the backend interface where strata-tui was "
            f"built for {binding.api_built}: {_REINSTALL}."
        )
    if binding.llama_decode_core != binding.llama_decode_llama_cpp:
        raise UserError(
            "Two copies of libllama are loaded, and strata-tui is bound to another one than llama_cpp: remove the "
            "folder with the other copy from LD_LIBRARY_PATH and LD_PRELOAD."
        )
    for name, size in binding.structs_llama_cpp.items():
        if binding.structs_core.get(name) != size:
            raise UserError(
                f"The struct {name} has {size} bytes in llama_cpp and {binding.structs_core.get(name)} in strata-tui: "
                f"{_REINSTALL}."
            )


@cache
def load() -> ModuleType:
    """The extension `strata_tui.engine._core`, checked. Raises UserError where it cannot be used."""
    # OpenMP reads this once, when llama_cpp brings in its library. By default its threads spin for a while after
    # each of a graph's hundreds of steps; on a machine with few or busy cores they then take the time that our
    # copier threads and the screen need, and decoding becomes many times slower. Passive threads sleep.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        llama_cpp = importlib.import_module("llama_cpp")
    except (ImportError, OSError, RuntimeError) as error:
        raise UserError(f"llama-cpp-python cannot be loaded ({_one_line(error)}): {_REINSTALL}.") from error
    check_version(llama_cpp.__version__)
    try:
        core = importlib.import_module("strata_tui.engine._core")
    except ImportError as error:
        raise UserError(
            f"The extension of strata-tui cannot be loaded ({_one_line(error)}): install the package with "
            "pip install . and run it from there, not from the source folder."
        ) from error
    check(_binding(llama_cpp, core))
    return core


def _binding(llama_cpp: ModuleType, core: ModuleType) -> Binding:
    """Asks both sides. Only llama_cpp's ctypes layer is used, never its high-level classes."""
    low = llama_cpp.llama_cpp
    address = ctypes.cast(low._lib.llama_decode, ctypes.c_void_p).value
    structs = ("llama_model_params", "llama_context_params", "llama_batch")
    return Binding(
        llama_cpp_python=llama_cpp.__version__,
        ggml_built=core.GGML_VERSION,
        ggml_loaded=core.runtime_ggml_version(),
        api_built=core.BACKEND_API_VERSION,
        api_loaded=core.registry_api_version(),
        llama_decode_core=core.address_of("llama_decode"),
        llama_decode_llama_cpp=address or 0,
        structs_core=core.struct_sizes(),
        structs_llama_cpp={name: ctypes.sizeof(getattr(low, name)) for name in structs},
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A ggml device. `type` is "CPU", "GPU", "IGPU" or "ACCEL"; memory in bytes."""

    name: str
    description: str
    type: str
    free: int
    total: int

    @property
    def cuda_index(self) -> int | None:
        """n of a device named CUDAn, else None."""
        match = _CUDA_NAME.fullmatch(self.name)
        return int(match[1]) if match else None


def devices() -> list[DeviceInfo]:
    """Every ggml device that the loaded llama.cpp offers, in its order."""
    return [DeviceInfo(**device) for device in load().devices()]


def pick_device(gpu: int | None) -> str:
    """Name of the ggml device to run on; see `choose`."""
    return choose(devices(), gpu)


def choose(found: Sequence[DeviceInfo], gpu: int | None) -> str:
    """Name of the device for `gpu`: None is the CUDA card with most free memory, else the CPU; -1 is the CPU;
    n is CUDAn. Raises UserError for a device that does not exist or is neither CUDA nor the CPU.
    """
    cards = {index: d for d in found if (index := d.cuda_index) is not None}
    if gpu == -1 or (gpu is None and not cards):
        for device in found:
            if device.type == "CPU":
                return device.name
        raise UserError(f"The installed llama.cpp offers no CPU device: {_REINSTALL}.")
    if gpu is None:
        return max(cards.values(), key=lambda d: d.free).name  # of equals, the first
    if gpu in cards:
        return cards[gpu].name
    others = [d for d in found if d.type in ("GPU", "IGPU") and d.cuda_index is None]
    if not cards and 0 <= gpu < len(others):
        raise UserError(
            f"Device {gpu} is {others[gpu].name} ({others[gpu].description}), and strata-tui runs on CUDA cards and "
            "the CPU only: install llama-cpp-python built with CUDA, or choose -1 for the CPU."
        )
    if not cards:
        raise UserError(f"There is no CUDA card {gpu}: no CUDA card was found, so choose -1 for the CPU.")
    names = ", ".join(f"{i} ({cards[i].description})" for i in sorted(cards))
    raise UserError(f"There is no CUDA card {gpu}: choose one of {names}, or -1 for the CPU.")


def gpu_notice() -> str | None:
    """One sentence where an NVIDIA GPU is present that llama.cpp cannot use, with what mends it; else None."""
    cards = nvidia_gpus()
    if not cards or any(device.cuda_index is not None for device in devices()):
        return None
    return notice_for(cards[0], _built_with_cuda())


def notice_for(card: str, built_with_cuda: bool) -> str:
    """The sentence of `gpu_notice` for a card that llama.cpp does not offer."""
    if built_with_cuda:
        return (
            f"{card} is present and llama-cpp-python is built with CUDA, but CUDA offers no device: check "
            "CUDA_VISIBLE_DEVICES, and that the driver is new enough for the CUDA it was built with."
        )
    return (
        f"{card} is present but the installed llama-cpp-python has no CUDA, so the CPU does all the work; with nvcc "
        f"installed, this line builds it with CUDA in 10 to 40 minutes: {CUDA_BUILD}"
    )


def nvidia_gpus() -> list[str]:
    """Names of the NVIDIA GPUs the driver knows; empty where there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def _built_with_cuda() -> bool:
    """Whether the loaded ggml has a CUDA backend, also when it offers no device."""
    load()
    lookup = importlib.import_module("llama_cpp").llama_cpp._lib.ggml_backend_reg_by_name
    lookup.argtypes = [ctypes.c_char_p]
    lookup.restype = ctypes.c_void_p
    return bool(lookup(b"CUDA"))
