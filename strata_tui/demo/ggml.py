"""ggml as far as training a small block needs it, through the libraries that llama_cpp has loaded.

Tensors are addresses. Shapes are ggml's, the fastest dimension first; numpy arrays are given and returned in
C order, so that an array of shape (n, m) is a tensor [m, n].
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Tensor = int  # address of a ggml_tensor

F32, F16, I32 = 0, 1, 26
_OF = {np.dtype(np.float32): F32, np.dtype(np.float16): F16, np.dtype(np.int32): I32}
_OVERHEAD = 1024  # bytes of one tensor's header, at most
NEOX = 2


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


_P, _I, _L, _F, _B, _Z = (
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_int64,
    ctypes.c_float,
    ctypes.c_bool,
    ctypes.c_size_t,
)
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ggml_init": (_P, (_InitParams,)),
    "ggml_free": (None, (_P,)),
    "ggml_new_tensor": (_P, (_P, _I, _I, ctypes.POINTER(_L))),
    "ggml_set_param": (None, (_P,)),
    "ggml_set_loss": (None, (_P,)),
    "ggml_set_output": (None, (_P,)),
    "ggml_mul_mat": (_P, (_P, _P, _P)),
    "ggml_add": (_P, (_P, _P, _P)),
    "ggml_sub": (_P, (_P, _P, _P)),
    "ggml_div": (_P, (_P, _P, _P)),
    "ggml_repeat": (_P, (_P, _P, _P)),
    "ggml_concat": (_P, (_P, _P, _P, _I)),
    "ggml_sum_rows": (_P, (_P, _P)),
    "ggml_sigmoid": (_P, (_P, _P)),
    "ggml_step": (_P, (_P, _P)),
    "ggml_argsort": (_P, (_P, _P, _I)),
    "ggml_view_2d": (_P, (_P, _P, _L, _L, _Z, _Z)),
    "ggml_view_3d": (_P, (_P, _P, _L, _L, _L, _Z, _Z, _Z)),
    "ggml_mul": (_P, (_P, _P, _P)),
    "ggml_scale": (_P, (_P, _P, _F)),
    "ggml_sum": (_P, (_P, _P)),
    "ggml_silu": (_P, (_P, _P)),
    "ggml_rms_norm": (_P, (_P, _P, _F)),
    "ggml_get_rows": (_P, (_P, _P, _P)),
    "ggml_argmax": (_P, (_P, _P)),
    "ggml_cpy": (_P, (_P, _P, _P)),
    "ggml_cast": (_P, (_P, _P, _I)),
    "ggml_cont": (_P, (_P, _P)),
    "ggml_permute": (_P, (_P, _P, _I, _I, _I, _I)),
    "ggml_reshape_2d": (_P, (_P, _P, _L, _L)),
    "ggml_reshape_3d": (_P, (_P, _P, _L, _L, _L)),
    "ggml_reshape_4d": (_P, (_P, _P, _L, _L, _L, _L)),
    "ggml_soft_max": (_P, (_P, _P)),
    "ggml_soft_max_ext": (_P, (_P, _P, _P, _F, _F)),
    "ggml_rope_ext": (_P, (_P, _P, _P, _P, _I, _I, _I, _F, _F, _F, _F, _F, _F)),
    "ggml_opt_step_adamw": (_P, (_P,) * 6),
    "ggml_new_graph_custom": (_P, (_P, _Z, _B)),
    "ggml_build_forward_expand": (None, (_P, _P)),
    "ggml_build_backward_expand": (None, (_P, _P, ctypes.POINTER(_P))),
    "ggml_graph_get_grad": (_P, (_P, _P)),
    "ggml_graph_n_nodes": (_I, (_P,)),
    "ggml_graph_reset": (None, (_P,)),
    "ggml_nbytes": (_Z, (_P,)),
    "ggml_backend_dev_by_name": (_P, (ctypes.c_char_p,)),
    "ggml_backend_dev_init": (_P, (_P, ctypes.c_char_p)),
    "ggml_backend_free": (None, (_P,)),
    "ggml_backend_buffer_free": (None, (_P,)),
    "ggml_backend_alloc_ctx_tensors": (_P, (_P, _P)),
    "ggml_backend_tensor_set": (None, (_P, _P, _Z, _Z)),
    "ggml_backend_tensor_get": (None, (_P, _P, _Z, _Z)),
    "ggml_backend_sched_new": (_P, (ctypes.POINTER(_P), _P, _I, _Z, _B, _B)),
    "ggml_backend_sched_free": (None, (_P,)),
    "ggml_backend_sched_reset": (None, (_P,)),
    "ggml_backend_sched_alloc_graph": (_B, (_P, _P)),
    "ggml_backend_sched_graph_compute": (_I, (_P, _P)),
}


class Ggml:
    """A device (and the CPU for what it cannot do), tensors that stay, and graphs over them."""

    def __init__(self, device: str, threads: int, *, tensors: int = 256, nodes: int = 2048) -> None:
        import llama_cpp.llama_cpp as low

        low.llama_backend_init()
        self._lib: Any = low._lib
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self._lib, name)
            function.restype, function.argtypes = result, list(arguments)
        self._nodes = nodes
        self._fixed = self._context(tensors * _OVERHEAD)
        self._graphs = self._context(nodes * _OVERHEAD * 4 + (8 << 20))
        self.g = self._graphs  # where operations are made
        self._backends = [self._backend(name) for name in dict.fromkeys((device, "CPU"))]
        threads_of = getattr(self._lib, "ggml_backend_cpu_set_n_threads", None)
        if threads_of is not None:
            threads_of.restype, threads_of.argtypes = None, [_P, _I]
            threads_of(self._backends[-1], threads)
        self._buffer = 0
        self._scheds: list[int] = []

    def _context(self, size: int) -> int:
        found: int | None = self._lib.ggml_init(_InitParams(size, None, True))
        if not found:
            raise MemoryError("ggml_init")
        return found

    def _backend(self, name: str) -> int:
        device = self._lib.ggml_backend_dev_by_name(name.encode())
        backend: int | None = self._lib.ggml_backend_dev_init(device, None) if device else None
        if not backend:
            raise RuntimeError(f"there is no ggml device {name}")
        return backend

    def call(self, name: str, *arguments: Any) -> int:
        """An operation of ggml, by its name without "ggml_"; its result is a tensor of the graph to be built."""
        result: int = getattr(self._lib, "ggml_" + name)(self.g, *arguments)
        return result

    # Tensors that stay

    def tensor(self, kind: int, *shape: int, param: bool = False) -> Tensor:
        """Before `allocate`. `param`: it is trained."""
        dims = (_L * len(shape))(*shape)
        made: int = self._lib.ggml_new_tensor(self._fixed, kind, len(shape), dims)
        if param:
            self._lib.ggml_set_param(made)
        return made

    def allocate(self) -> None:
        """On the device; once."""
        buffer = self._lib.ggml_backend_alloc_ctx_tensors(self._fixed, self._backends[0])
        if not buffer:
            raise MemoryError("no device memory for the tensors")
        self._buffer = buffer

    def set(self, tensor: Tensor, values: Array) -> None:
        data = np.ascontiguousarray(values)
        if data.nbytes != self._lib.ggml_nbytes(tensor):
            raise ValueError(f"{data.nbytes} bytes for a tensor of {self._lib.ggml_nbytes(tensor)}")
        self._lib.ggml_backend_tensor_set(tensor, data.ctypes.data, 0, data.nbytes)

    def get(self, tensor: Tensor, kind: type[np.generic], *shape: int) -> Array:
        data = np.empty(shape, kind)
        if data.nbytes != self._lib.ggml_nbytes(tensor):
            raise ValueError(f"{data.nbytes} bytes of a tensor of {self._lib.ggml_nbytes(tensor)}")
        self._lib.ggml_backend_tensor_get(tensor, data.ctypes.data, 0, data.nbytes)
        return data

    # Graphs

    def graph(self, outputs: Sequence[Tensor]) -> int:
        """Everything that `outputs` need."""
        made: int = self._lib.ggml_new_graph_custom(self.g, self._nodes, False)
        for tensor in outputs:
            self._lib.ggml_set_output(tensor)
            self._lib.ggml_build_forward_expand(made, tensor)
        return made

    def training_graph(self, loss: Tensor, params: Sequence[tuple[Tensor, Tensor, Tensor]], settings: Tensor) -> int:
        """The loss, its gradients and a step of AdamW. `params`: (tensor, first moment, second moment), made with
        `tensor`, as are `settings`: 7 numbers as ggml_opt_step_adamw wants them. `allocate` comes afterwards.
        """
        lib = self._lib
        lib.ggml_set_loss(loss)
        made: int = lib.ggml_new_graph_custom(self.g, self._nodes, True)
        lib.ggml_build_forward_expand(made, loss)
        accumulators = (_P * lib.ggml_graph_n_nodes(made))()
        accumulators[len(accumulators) - 1] = self.tensor(F32, 1)  # the loss's own gradient: 1
        lib.ggml_build_backward_expand(self.g, made, accumulators)
        for param, first, second in params:
            gradient = lib.ggml_graph_get_grad(made, param)
            if not gradient:
                raise RuntimeError("a parameter has no gradient")
            lib.ggml_build_forward_expand(made, self.call("opt_step_adamw", param, gradient, first, second, settings))
        return made

    def reset(self, training_graph: int) -> None:
        """Moments 0, the loss's gradient 1; after `allocate`."""
        self._lib.ggml_graph_reset(training_graph)

    def runner(self, graph: int) -> int:
        """Memory for one graph, which may then be run again and again."""
        backends = (_P * len(self._backends))(*self._backends)
        sched: int = self._lib.ggml_backend_sched_new(backends, None, len(backends), self._nodes * 2, False, False)
        if not self._lib.ggml_backend_sched_alloc_graph(sched, graph):
            raise MemoryError("no device memory for a graph")
        self._scheds.append(sched)
        return sched

    def run(self, runner: int, graph: int) -> None:
        status = self._lib.ggml_backend_sched_graph_compute(runner, graph)
        if status != 0:
            raise RuntimeError(f"ggml_backend_sched_graph_compute returned {status}")

    def close(self) -> None:
        for sched in self._scheds:
            self._lib.ggml_backend_sched_free(sched)
        if self._buffer:
            self._lib.ggml_backend_buffer_free(self._buffer)
        for backend in self._backends:
            self._lib.ggml_backend_free(backend)
        self._lib.ggml_free(self._graphs)
        self._lib.ggml_free(self._fixed)
