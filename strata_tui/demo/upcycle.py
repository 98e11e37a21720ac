"""Writes the demo model: SmolLM2 (llama) as a mixture of experts (glm4moe), weights copied block by block.

Each feed-forward block is cut in two: the first neurons become the shared expert, the others the routed
part. Every routed expert is a copy of that part with its neurons, in whole quantization blocks of 32,
in an order of its own, and with the scales of its down projection moved by one unit in the last place.
So the text stays the model's own whatever the router picks, while every expert's bytes tell it from the
others and an expert served in another's place shows in the logits. (The order alone would not do: it
changes a sum's last bits, which 8-bit activations mostly swallow.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from numpy.typing import NDArray

from .head_data import ROUTER, ROUTER_BIAS, HeadTensor

Array = NDArray[Any]
Progress = Callable[[int, int], None]  # bytes written, bytes in all

EXPERTS, USED = 24, 4
EXPERT_NEURONS = 512  # the shared expert has twice as many: 1536 = 3 * 512
_BLOCK = 32  # neurons that keep together: the quantization block of the down projection
_SEED = 0


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]  # numpy order, in bytes for quantized types
    kind: GGMLQuantizationType
    make: Callable[[], Array]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.kind == GGMLQuantizationType.F32 else np.uint8)

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize


def write_demo_model(
    source: Path,
    destination: Path,
    routers: Array,
    progress: Progress | None = None,
    head: Mapping[str, HeadTensor] | None = None,
) -> None:
    """Writes the model to `destination`. `routers`: float, (layers, EXPERTS, embedding length). `head`: a trained
    NextN block (head_data.py), which becomes a layer behind the others, with experts made as theirs are.

    Memory: one expert tensor at a time. Raises OSError when the disk refuses.
    """
    upcycle = _Upcycle(GGUFReader(source), routers, head or {})
    writer = GGUFWriter(destination, "glm4moe")
    try:
        upcycle.add_metadata(writer)
        tensors = list(upcycle.tensors())
        for t in tensors:
            writer.add_tensor_info(t.name, t.shape, t.dtype, t.nbytes, raw_dtype=t.kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        done, total = 0, sum(t.nbytes for t in tensors)
        for t in tensors:
            writer.write_tensor_data(t.make())
            done += t.nbytes
            if progress:
                progress(done, total)
    finally:
        writer.close()


def permutations(layer: int) -> NDArray[np.int64]:
    """Order of the routed part's blocks in each expert of a layer: (EXPERTS, EXPERT_NEURONS / 32), all different."""
    rng = np.random.default_rng((_SEED, layer))
    blocks = EXPERT_NEURONS // _BLOCK
    found: dict[bytes, NDArray[np.int64]] = {}
    while len(found) < EXPERTS:
        order = rng.permutation(blocks)
        found.setdefault(order.tobytes(), order)
    return np.stack(list(found.values()))


class _Upcycle:
    def __init__(self, reader: GGUFReader, routers: Array, head: Mapping[str, HeadTensor]) -> None:
        self.reader = reader
        self.by_name: dict[str, Any] = {t.name: t for t in reader.tensors}
        self.head = head
        self.layers = self.number("block_count")
        self.width = self.number("embedding_length")
        self.heads = self.number("attention.head_count")
        self.kv_heads = self.number("attention.head_count_kv")
        self.neurons = self.number("feed_forward_length")
        if routers.shape != (self.layers, EXPERTS, self.width) or self.neurons != 3 * EXPERT_NEURONS:
            raise ValueError("routers, or the source model, are not of the demo model's shape")
        self.routers = routers

    def value(self, key: str) -> Any:
        return self.reader.fields[f"llama.{key}"].contents()

    def number(self, key: str) -> int:
        return int(self.value(key))

    def add_metadata(self, w: GGUFWriter) -> None:
        own = {"general.architecture", "general.name", "general.basename", "general.size_label", "general.finetune"}
        for key, field in self.reader.fields.items():
            if key.startswith(("GGUF.", "llama.")) or key in own:
                continue
            if field.types[0] == gguf.GGUFValueType.ARRAY:
                w.add_array(key, field.contents())
            else:
                w.add_key_value(key, field.contents(), field.types[0])
        w.add_name("SmolLM2 135M demo, 24 experts")
        w.add_description(
            "Made by strata-tui from SmolLM2-135M-Instruct (HuggingFaceTB, Apache-2.0): feed-forward blocks split, "
            "copied and reordered as experts, scales moved by one unit in the last place, routers added."
        )
        # Sampled, a model this small wanders off now and then; greedy without a penalty, it repeats itself.
        w.add_float32("general.sampling.temp", 0.0)
        w.add_float32("general.sampling.penalty_repeat", 1.08)
        w.add_base_model_count(1)
        w.add_base_model_name(0, "SmolLM2-135M-Instruct")
        w.add_base_model_organization(0, "HuggingFaceTB")
        w.add_base_model_repo_url(0, "https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct")
        head = self.width // self.heads
        w.add_block_count(self.layers + bool(self.head))
        if self.head:
            w.add_nextn_predict_layers(1)
        w.add_context_length(self.number("context_length"))
        w.add_embedding_length(self.width)
        w.add_feed_forward_length(self.neurons)
        w.add_head_count(self.heads)
        w.add_head_count_kv(self.kv_heads)
        w.add_key_length(head)
        w.add_value_length(head)
        w.add_rope_dimension_count(head)
        w.add_rope_freq_base(self.value("rope.freq_base"))
        w.add_layer_norm_rms_eps(self.value("attention.layer_norm_rms_epsilon"))
        w.add_vocab_size(self.number("vocab_size"))
        w.add_expert_count(EXPERTS)
        w.add_expert_used_count(USED)
        w.add_expert_feed_forward_length(EXPERT_NEURONS)
        w.add_expert_shared_count(self.neurons // EXPERT_NEURONS - 1)
        w.add_leading_dense_block_count(0)
        w.add_expert_weights_norm(True)  # weights sum to 1: the routed part counts once
        w.add_expert_weights_scale(1.0)
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)

    def tensors(self) -> Iterator[_Tensor]:
        for t in self.reader.tensors:
            if not t.name.startswith("blk."):
                yield self._as_is(t.name, t.name)
        for layer in range(self.layers):
            yield from self.block(layer, layer)
        if self.head:
            last = self.layers
            self.by_name.update({f"blk.{last}.{name}": tensor for name, tensor in self.head.items()})
            yield from self.block(last, last)
            for name in self.head:
                if name.startswith("nextn."):
                    yield self._as_is(f"blk.{last}.{name}", f"blk.{last}.{name}")

    def block(self, layer: int, source: int) -> Iterator[_Tensor]:
        """Tensors of block `layer`, made from the source model's block `source`."""
        new, old = f"blk.{layer}.", f"blk.{source}."
        yield self._as_is(new + "attn_norm.weight", old + "attn_norm.weight")
        yield self._rows(new + "attn_q.weight", old + "attn_q.weight", lambda d: to_neox(d, self.heads))
        yield self._rows(new + "attn_k.weight", old + "attn_k.weight", lambda d: to_neox(d, self.kv_heads))
        yield self._as_is(new + "attn_v.weight", old + "attn_v.weight")
        yield self._as_is(new + "attn_output.weight", old + "attn_output.weight")
        yield self._as_is(new + "post_attention_norm.weight", old + "ffn_norm.weight")
        f32 = GGMLQuantizationType.F32
        router, bias = self._router(old, source)
        yield _Tensor(new + ROUTER, router.shape, f32, lambda: router)
        yield _Tensor(new + ROUTER_BIAS, bias.shape, f32, lambda: bias)
        order = permutations(source)
        yield from self._neurons_in_rows(new + "ffn_gate", old + "ffn_gate.weight", order)
        yield from self._neurons_in_rows(new + "ffn_up", old + "ffn_up.weight", order)
        yield from self._neurons_in_columns(new + "ffn_down", old + "ffn_down.weight", order, source)

    def _router(self, old: str, source: int) -> tuple[Array, Array]:
        """Of a block; a trained head brings its own."""
        if old + ROUTER in self.by_name:
            router, bias = (self.by_name[old + name].data for name in (ROUTER, ROUTER_BIAS))
            return router, bias
        router = np.ascontiguousarray(self.routers[min(source, self.layers - 1)], np.float32)
        return router, np.zeros(EXPERTS, np.float32)

    def _neurons_in_rows(self, new: str, old: str, order: NDArray[np.int64]) -> Iterator[_Tensor]:
        tensor = self.by_name[old]
        shared, routed = np.split(tensor.data, [self.neurons - EXPERT_NEURONS])
        blocks = routed.reshape(-1, EXPERT_NEURONS // _BLOCK, _BLOCK, routed.shape[1])
        size = (EXPERTS, EXPERT_NEURONS, routed.shape[1])

        def experts() -> Array:
            return np.stack([blocks[i % len(blocks)][one] for i, one in enumerate(order)]).reshape(size)

        yield _Tensor(new + "_shexp.weight", shared.shape, tensor.tensor_type, lambda: np.ascontiguousarray(shared))
        yield _Tensor(new + "_exps.weight", size, tensor.tensor_type, experts)

    def _neurons_in_columns(self, new: str, old: str, order: NDArray[np.int64], source: int) -> Iterator[_Tensor]:
        tensor = self.by_name[old]
        # blocks of 32 neurons, the scale in the first two bytes
        if tensor.tensor_type not in (GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0):
            raise ValueError(f"{tensor.name} is neither Q4_1 nor Q8_0")
        size = gguf.GGML_QUANT_SIZES[tensor.tensor_type][1]
        shared, routed = np.split(tensor.data, [(self.neurons - EXPERT_NEURONS) // _BLOCK * size], axis=1)
        blocks = routed.reshape(self.width, -1, EXPERT_NEURONS // _BLOCK, size)
        shape = (EXPERTS, self.width, EXPERT_NEURONS // _BLOCK * size)

        def experts() -> Array:
            copies = np.stack([blocks[:, i % blocks.shape[1]][:, one] for i, one in enumerate(order)])
            _nudge_scales(copies, np.random.default_rng((_SEED, source, 1)))
            return copies.reshape(shape)

        yield _Tensor(new + "_shexp.weight", shared.shape, tensor.tensor_type, lambda: np.ascontiguousarray(shared))
        yield _Tensor(new + "_exps.weight", shape, tensor.tensor_type, experts)

    def _as_is(self, new: str, old: str) -> _Tensor:
        return self._rows(new, old, lambda d: d)

    def _rows(self, new: str, old: str, change: Callable[[Array], Array]) -> _Tensor:
        tensor = self.by_name[old]
        data: Array = tensor.data
        return _Tensor(new, data.shape, tensor.tensor_type, lambda: np.ascontiguousarray(change(data)))


def to_neox(rows: Array, heads: int) -> Array:
    """Rows of a query or key matrix, from rotary pairs (2i, 2i+1) of each head to pairs (i, i + half)."""
    shape = rows.shape
    return rows.reshape(heads, shape[0] // heads // 2, 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def from_neox(rows: Array, heads: int) -> Array:
    """The inverse of `to_neox`."""
    shape = rows.shape
    return rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def _nudge_scales(blocks: NDArray[np.uint8], rng: np.random.Generator) -> None:
    """Moves the 16-bit scale that each block, (..., bytes), begins with by one unit in the last place, up or down."""
    scales = blocks[..., :2].copy().view(np.uint16)[..., 0]
    magnitude = scales & 0x7FFF
    step = np.where(rng.integers(0, 2, scales.shape), 1, -1)
    step[(magnitude < 0x0400) | (magnitude > 0x7BFE)] = 0  # zero, subnormal, or next to infinity: left alone
    scales = (scales + step).astype(np.uint16)
    blocks[..., :2] = scales[..., None].view(np.uint8)
