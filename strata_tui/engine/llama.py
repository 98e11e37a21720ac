"""The only door to llama.cpp: its C API through llama_cpp's ctypes bindings, which release the GIL.

llama_cpp has no usable types; the engine's `Any`s are in this file, llama_state.py, sampler.py and templates.py.
Nothing here is thread safe: one thread owns a `Model` and its `Context`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .llama_log import LOG
from .llama_state import SequenceState

if TYPE_CHECKING:
    from . import _core

Logits = NDArray[np.float32]
Progress = Callable[[float], bool]  # 0..1 -> go on?

FLASH_AUTO, FLASH_OFF, FLASH_ON = -1, 0, 1
OK, NO_SLOT, ABORTED = 0, 1, 2  # what Context.decode returns; below 0: an error
_ALL_LAYERS = 999


@functools.cache
def library() -> Any:
    """llama_cpp's low-level module, after native.load() has checked that it fits our extension."""
    from . import native

    native.load()
    import llama_cpp.llama_cpp as lib

    LOG.install(lib.llama_log_callback, lib.llama_log_set)
    lib.llama_backend_init()
    return lib


def pci_address(device: str) -> str | None:
    """PCI address of a ggml device by its name, as NVML takes it; None where ggml knows none."""
    api = library()._lib
    api.ggml_backend_dev_by_name.argtypes = [ctypes.c_char_p]
    api.ggml_backend_dev_by_name.restype = ctypes.c_void_p
    api.ggml_backend_dev_get_props.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    api.ggml_backend_dev_get_props.restype = None
    handle = api.ggml_backend_dev_by_name(device.encode())
    if not handle:
        return None
    props = _DeviceProps()
    api.ggml_backend_dev_get_props(handle, ctypes.byref(props))
    return props.device_id.decode() if props.device_id else None


class _DeviceProps(ctypes.Structure):  # struct ggml_backend_dev_props
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("caps", ctypes.c_bool * 64),  # four bools today
    ]


class _Override(ctypes.Structure):
    _fields_ = [("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p)]


def _place(lib: Any, params: Any, placement: Placement) -> list[object]:
    """Sets plain llama.cpp's placement in `params`; what is returned must live until the load returns."""
    params.n_gpu_layers = 0 if placement.device == "CPU" else _ALL_LAYERS
    if placement.device == "CPU":
        return []
    api = lib._lib
    api.ggml_backend_dev_by_name.argtypes = [ctypes.c_char_p]
    api.ggml_backend_dev_by_name.restype = ctypes.c_void_p
    devices = (ctypes.c_void_p * 2)(api.ggml_backend_dev_by_name(placement.device.encode()), None)
    params.devices = ctypes.cast(devices, ctypes.c_void_p)
    params.split_mode = lib.LLAMA_SPLIT_MODE_NONE
    if not placement.cpu_expert_layers:
        return [devices]
    api.ggml_backend_cpu_buffer_type.restype = ctypes.c_void_p
    layers = "|".join(str(layer) for layer in range(placement.cpu_expert_layers))
    pattern = rf"blk\.({layers})\.ffn_(up|down|gate|gate_up)_exps\.".encode()
    overrides = (_Override * 2)(_Override(pattern, api.ggml_backend_cpu_buffer_type()), _Override(None, None))
    params.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
    return [devices, overrides]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where plain llama.cpp puts a model, for comparison: a device, and the layers whose experts stay on the CPU."""

    device: str = "CPU"
    cpu_expert_layers: int = 0
    mmap: bool = False


class Model:
    """A loaded model and its vocabulary. With a tier, expert weights are the tier's."""

    def __init__(self, ptr: int, lib: Any) -> None:
        self.ptr = ptr
        self._lib = lib
        self._vocab = lib.llama_model_get_vocab(ptr)
        self._buf = ctypes.create_string_buffer(256)
        # Asked for each token that is written: a call lets the GIL go, and gets it back late while the screen is drawn.
        self._pieces: dict[tuple[int, bool], bytes] = {}
        self._ends: dict[int, bool] = {}
        self.n_vocab = int(lib.llama_vocab_n_tokens(self._vocab))
        self.n_swa = int(lib.llama_model_n_swa(ptr))
        self.has_state = bool(lib.llama_model_is_recurrent(ptr) or lib.llama_model_is_hybrid(ptr))
        writes = lib.llama_model_has_decoder(ptr) and not lib.llama_model_has_encoder(ptr)
        self.chats = bool(writes and not lib.llama_model_is_diffusion(ptr))  # writes text token by token

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        tier: _core.Tier | None = None,
        stream: _core.Stream | None = None,
        pattern: str = "",
        placement: Placement = Placement(),  # noqa: B008 (frozen)
        heads: bool = False,
        progress: Progress | None = None,
    ) -> Model:
        """Loads from `stream` on the tier's device, or without a tier from `path` on plain llama.cpp as placed.

        `heads`: with the NextN layers. Raises UserError with llama.cpp's reason; a load stopped by `progress`
        raises it too.
        """
        lib = library()
        params = lib.llama_model_default_params()
        params.use_extra_bufts = False
        params.load_mode = lib.LLAMA_LOAD_MODE_NONE
        params.load_mtp = heads
        keep: list[object] = []  # alive until the load returns
        if progress is not None:
            params.progress_callback = lib.llama_progress_callback(lambda part, _: progress(part))
            keep.append(params.progress_callback)
        LOG.start()
        if tier is None:
            keep += _place(lib, params, placement)
            if placement.mmap:
                params.load_mode = lib.LLAMA_LOAD_MODE_MMAP
            ptr = lib.llama_model_load_from_file(str(path).encode(), params)
        else:
            if stream is None:
                raise ValueError("a tier loads from its stream")
            devices = (ctypes.c_void_p * 2)(tier.device_ptr, None)
            params.devices = ctypes.cast(devices, ctypes.c_void_p)
            overrides = (_Override * 2)(_Override(pattern.encode(), tier.buft_ptr), _Override(None, None))
            if pattern:
                params.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
            params.n_gpu_layers = _ALL_LAYERS
            params.split_mode = lib.LLAMA_SPLIT_MODE_NONE
            keep += [devices, overrides]
            ptr = lib.llama_model_load_from_file_ptr(stream.file_ptr, params)
        del keep
        if not ptr:
            raise UserError(f"{path.name}: llama.cpp cannot load this model: {LOG.reason()}.")
        return cls(ptr, lib)

    def tokenize(self, text: str, *, special: bool = True, add_special: bool = False) -> list[int]:
        """Token ids of `text`. `special`: control tokens written in it count as such.

        `add_special`: with BOS and EOS where the model wants them.
        """
        raw = text.encode("utf-8", "replace")  # a lone surrogate becomes "?"
        size = len(raw) + 8
        while True:
            out = (self._lib.llama_token * size)()
            n = self._lib.llama_tokenize(self._vocab, raw, len(raw), out, size, add_special, special)
            if n >= 0:
                return list(out[:n])
            size = -n

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes of one token; nothing for control tokens unless `special`."""
        if (known := self._pieces.get((token, special))) is not None:
            return known
        n = self._lib.llama_token_to_piece(self._vocab, token, self._buf, len(self._buf), 0, special)
        if n < 0:
            self._buf = ctypes.create_string_buffer(-n)
            n = self._lib.llama_token_to_piece(self._vocab, token, self._buf, len(self._buf), 0, special)
        self._pieces[token, special] = self._buf.raw[:n]
        return self._pieces[token, special]

    def is_control(self, token: int) -> bool:
        """Whether `token` steers the model and is no text."""
        return bool(self._lib.llama_vocab_is_control(self._vocab, token))

    def is_end(self, token: int) -> bool:
        """Whether the vocabulary counts `token` as an end of generation."""
        if (known := self._ends.get(token)) is None:
            known = self._ends[token] = bool(self._lib.llama_vocab_is_eog(self._vocab, token))
        return known

    def token_text(self, token: int) -> str:
        """A token's text in the vocabulary ("" for -1)."""
        return "" if token < 0 else self.piece(token, special=True).decode("utf-8", "replace")

    @property
    def bos(self) -> int:
        return int(self._lib.llama_vocab_bos(self._vocab))

    @property
    def eos(self) -> int:
        return int(self._lib.llama_vocab_eos(self._vocab))

    @property
    def adds_bos(self) -> bool:
        return bool(self._lib.llama_vocab_get_add_bos(self._vocab))

    def chat_template(self) -> str | None:
        """The model's own chat template, or None."""
        raw = self._lib.llama_model_chat_template(self.ptr, None)
        return raw.decode("utf-8", "replace") if raw else None

    def close(self) -> None:
        """Frees the model; its contexts must be closed before."""
        if self.ptr:
            self._lib.llama_model_free(self.ptr)
            self.ptr = 0


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """Sizes in tokens. `flash`: FLASH_AUTO, FLASH_OFF or FLASH_ON."""

    context: int
    batch: int = 512
    threads: int = 1
    flash: int = FLASH_AUTO
    outputs: int = 0  # most logits rows of one decode; 0: as many as tokens. Fewer need less memory
    snapshots: int = 0  # recurrent states kept, so that as many tokens can be taken back (where the model can)
    heads: bool = False  # the context of the model's NextN heads, beside that of the model itself


class Context(SequenceState):
    """A model's KV cache and compute buffers, for one sequence."""

    def __init__(self, model: Model, options: ContextOptions, tier: _core.Tier | None = None) -> None:
        """Raises UserError when llama.cpp cannot allocate it."""
        lib = library()
        params = lib.llama_context_default_params()
        params.n_ctx = options.context
        params.n_batch = params.n_ubatch = options.batch
        params.n_seq_max = 1
        params.n_threads = params.n_threads_batch = options.threads
        params.flash_attn_type = options.flash
        params.n_outputs_max = options.outputs
        params.n_rs_seq = options.snapshots
        if options.heads:
            params.ctx_type = lib.LLAMA_CONTEXT_TYPE_MTP
        params.swa_full = False
        params.no_perf = True
        if tier is not None:
            params.abort_callback = lib.ggml_abort_callback(tier.abort_callback)
            params.abort_callback_data = tier.abort_data
        LOG.start()
        self._lib = lib
        self.model = model
        self.ptr = lib.llama_init_from_model(model.ptr, params)
        if not self.ptr:
            raise UserError(
                f"llama.cpp could not make room for a context of {options.context} tokens ({LOG.reason()}): "
                f"ask for a shorter one with --ctx or a smaller --batch."
            )
        self._keep = params  # holds the abort callback
        self.kind = f"keys {params.type_k}, values {params.type_v}, flash attention {params.flash_attn_type}"
        self._memory = lib.llama_get_memory(self.ptr)
        if not self._memory:
            lib.llama_free(self.ptr)
            raise UserError("This model keeps no context, so it cannot chat (an embedding model?): open another one.")
        self.size = int(lib.llama_n_ctx(self.ptr))
        self.batch = int(lib.llama_n_batch(self.ptr))
        batch = self._batch = lib.llama_batch_init(self.batch, 0, 1)
        # Its arrays, seen by numpy: filling them one by one costs milliseconds for a long prompt.
        shape = (self.batch,)
        self._tokens = np.ctypeslib.as_array(batch.token, shape=shape)
        self._positions = np.ctypeslib.as_array(batch.pos, shape=shape)
        self._wanted = np.ctypeslib.as_array(batch.logits, shape=shape)
        np.ctypeslib.as_array(batch.n_seq_id, shape=shape)[:] = 1  # all tokens are of sequence 0
        for i in range(self.batch):
            batch.seq_id[i][0] = 0

    def decode(self, tokens: Sequence[int], position: int, *, all_logits: bool = False) -> int:
        """Runs at most `batch` tokens from `position` on; returns OK, NO_SLOT, ABORTED or a number below 0.

        Logits are kept for the last token, or for all.
        """
        batch, n = self._batch, len(tokens)
        if not 0 < n <= self.batch:
            raise ValueError(f"{n} tokens do not fit a batch of {self.batch}")
        batch.n_tokens = n
        self._tokens[:n] = tokens
        self._positions[:n] = np.arange(position, position + n)
        self._wanted[:n] = all_logits
        self._wanted[n - 1] = 1
        status = int(self._lib.llama_decode(self.ptr, batch))
        if status == OK:
            self._lib.llama_synchronize(self.ptr)
        return status

    def plan_again(self, tier: _core.Tier) -> bool:
        """Has llama.cpp plan anew where the tensors of its graphs lie, for the largest of them; whether it did.

        It does that when the context is made. If graphs then get more nodes (NextN heads ask for the hidden rows),
        that plan fits none of them, and whenever one is larger in any respect than the one before, all is planned and
        moved again: 1 to 3 ms, and what a GPU has recorded of graphs is void. Between rounds; the memory is cleared.
        """
        self._lib.llama_set_adapter_cvec(self.ptr, None, 0, 0, 0, 0)  # there is none; but the next decode plans anew
        tier.cancel(True)
        try:
            status = self.decode([0], 0)  # ... and ends before anything is computed
        finally:
            tier.cancel(False)
        self.clear()
        return status == ABORTED

    def logits(self, index: int = -1) -> Logits:
        """Logits of the batch's token `index` (float32, n_vocab), valid until the next decode."""
        ptr = self._lib.llama_get_logits_ith(self.ptr, index)
        return np.ctypeslib.as_array(ptr, shape=(self.model.n_vocab,))

    def remove_from(self, position: int) -> bool:
        """Forgets tokens from `position` on; False where this memory cannot forget a part."""
        return bool(self._lib.llama_memory_seq_rm(self._memory, 0, position, -1))

    def clear(self) -> None:
        """Forgets everything, recurrent states included."""
        self._lib.llama_memory_clear(self._memory, True)

    def pos_min(self) -> int:
        return int(self._lib.llama_memory_seq_pos_min(self._memory, 0))

    def pos_max(self) -> int:
        """Last position present, -1 when empty."""
        return int(self._lib.llama_memory_seq_pos_max(self._memory, 0))

    def close(self) -> None:
        if self.ptr:
            self._lib.llama_batch_free(self._batch)
            self._lib.llama_free(self.ptr)
            self.ptr = 0


class LowLevel:
    """A model opened for logits: with the tier, or as plain llama.cpp for reference. For tests and benches.

    Both run with extra buffer types off and equal threads, ubatch and flash attention.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        tier: bool = True,
        slots: int | None = None,
        device: str = "CPU",
        context: int = 2048,
        batch: int = 512,
        threads: int = 1,
        flash: int = FLASH_AUTO,
        modes: tuple[int, int] | None = None,
        mirror: int = 0,
        pool_buffers: int = 16,
        stager_threads: int = 0,
        direct: int = 0,
        copy_delay_us: int = 0,
        copy_seed: int = 0,
        fault: int = 0,
        placement: Placement | None = None,
        compute_delay_us: int = 0,
        stream: tuple[int, float, bool] | None = None,
    ) -> None:
        """`placement`: of plain llama.cpp. `slots` None: one for every expert. `mirror`: limit in bytes.

        `modes`: _core.PIN_*, _core.STAGER_*; None: both automatic. `stream`: the tokens of a batch from which it
        streams, the ring's size in units, and whether the ring has memory of its own.
        `direct`: _core.DIRECT_*.
        """
        from . import gguf_info, native

        path = Path(path)
        core = native.load()
        self.tier: _core.Tier | None = None
        self.position = 0
        reader = None
        pattern = ""
        if tier:
            info = gguf_info.read_info(path)
            self.tier = core.Tier(
                device,
                [str(shard) for shard in info.shards],
                gguf_info.expert_groups(info),
                pool_buffers=pool_buffers,
                stager_threads=stager_threads,
                direct=direct,
                copy_delay_us=copy_delay_us,
                copy_seed=copy_seed,
                fault=fault,
                compute_delay_us=compute_delay_us,
            )
            reader = self.tier.open_stream(gguf_info.load_segments(info))
            pattern = gguf_info.override_pattern(info)
        where = placement or Placement(device)
        self.model = Model.load(path, tier=self.tier, stream=reader, pattern=pattern, placement=where)
        if reader is not None:
            reader.close()
        self.context = Context(self.model, ContextOptions(context, batch, threads, flash), self.tier)
        if self.tier is not None and self.tier.n_experts:
            self.tier.allocate(self.tier.n_experts if slots is None else slots)
            self.tier.set_modes(*(modes or (core.PIN_AUTO, core.STAGER_AUTO)))
            if stream is not None:
                tokens, units, own = stream
                self.tier.set_stream(tokens, int(units * self.tier.stream_unit), own)
            if mirror:
                self.tier.fill_mirror(mirror)

    def tokenize(self, text: str) -> list[int]:
        return self.model.tokenize(text, add_special=True)

    def decode(self, tokens: Sequence[int], all_logits: bool = False) -> Logits:
        """Appends tokens (batch by batch); a copy of the last token's logits (n_vocab), or of all (n, n_vocab).

        Raises RuntimeError with llama_decode's status and the tier's last error.
        """
        rows: list[Logits] = []
        for start in range(0, len(tokens), self.context.batch):
            part = tokens[start : start + self.context.batch]
            if self.tier is not None and 0 < self.tier.stream()["from"] <= len(part):
                self.tier.stream_ahead()
            status = self.context.decode(part, self.position, all_logits=all_logits)
            if status != OK:
                why = self.tier.last_error() if self.tier is not None else ""
                raise RuntimeError(f"llama_decode returned {status}: {why}")
            self.position += len(part)
            wanted = range(len(part)) if all_logits else [len(part) - 1]
            rows += [self.context.logits(i).copy() for i in wanted]
        return np.stack(rows) if all_logits else rows[-1]

    def clear(self) -> None:
        self.context.clear()
        self.position = 0

    def close(self) -> None:
        self.context.close()
        self.model.close()
        if self.tier is not None:
            self.tier.close()

    def __enter__(self) -> LowLevel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
