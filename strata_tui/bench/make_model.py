"""`strata-tui bench make-model`: a qwen3moe GGUF of any size with random weights, for speed only.

The routers are skewed so that, over decoding random tokens, an LRU cache of a given share of all
experts hits at a given rate. Random weights hold two traps, in which every token ends up picking the
same experts: gate and up weights that are equal, and blocks that add much to the residual stream.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import quantize
from numpy.typing import NDArray

from ..demo.source import source_model
from ..engine.gguf_info import read_info
from ..errors import UserError

Floats = NDArray[np.float32]
Picks = NDArray[np.integer[Any]]

TYPES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4", "f16", "bf16")  # those that gguf can quantize to
_HEAD = 128  # size of an attention head
_UNIT = 32  # elements that keep together when random data is reused
_POOL_UNITS = 1 << 17
_MOST_POOL_UNITS = 1 << 21
_WARM_TOKENS, _MEASURED_TOKENS = 400, 400  # of a simulation
_SIGMA_LIMIT = 4.0
_PRECISION = 0.002  # of the solved hit rate


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's shape. `embd`: embedding length; `ff`: neurons of one expert; `used`: experts a token picks."""

    layers: int = 48
    experts: int = 128
    used: int = 8
    embd: int = 2048
    ff: int = 768
    kind: GGMLQuantizationType = GGMLQuantizationType.Q4_0
    context: int = 32768
    residual_gain: float = 0.01

    def check(self) -> None:
        """Raises UserError for what qwen3moe or the quantization cannot be."""
        if min(self.layers, self.experts, self.used, self.embd, self.ff, self.context) < 1:
            raise UserError("A model's sizes must be at least 1.")
        if self.used > self.experts:
            raise UserError(f"A token cannot use {self.used} of {self.experts} experts: lower --used.")
        if self.embd % 64 or self.ff % 32:
            raise UserError("--embd must be a multiple of 64 and --ff one of 32.")

    @property
    def heads(self) -> int:
        return self.embd // 64

    @property
    def kv_heads(self) -> int:
        n = max(1, self.heads // 8)
        while self.heads % n:
            n -= 1
        return n


# The skew of the routers


def lru_hit_rate(picks: Picks, slots: int, warm: int = 0) -> float:
    """Hits over picks of an LRU cache of (layer, expert) with `slots` places; the first `warm` tokens do not count.

    `picks`: (tokens, layers, used experts), experts in any order; the cache is empty at first.
    """
    n_experts = int(picks.max()) + 1
    keys = picks + np.arange(picks.shape[1])[None, :, None] * n_experts
    cache: OrderedDict[int, None] = OrderedDict()
    hits = count = 0
    for token, row in enumerate(keys.reshape(len(keys), -1).tolist()):
        for key in row:
            if key in cache:
                cache.move_to_end(key)
                hits += token >= warm
            else:
                cache[key] = None
                if len(cache) > slots:
                    cache.popitem(last=False)
        count += len(row) * (token >= warm)
    return hits / count


def router_scales(shape: Shape, sigma: float, seed: int) -> Floats:
    """Length of each router row, (layers, experts): lognormal of width `sigma`. Longer rows are picked more often."""
    normal = np.random.default_rng((seed, 1)).standard_normal((shape.layers, shape.experts))
    return np.exp(sigma * normal).astype(np.float32)


def simulated_hit_rate(shape: Shape, sigma: float, slots: int, seed: int) -> float:
    """LRU hit rate of routers of this skew on independent normal hidden states.

    A row's logit on such a state is normal with the row's length as its deviation, so no weights are needed.
    """
    rng = np.random.default_rng((seed, 2))
    scales = router_scales(shape, sigma, seed)
    tokens = _WARM_TOKENS + _MEASURED_TOKENS
    picks = np.empty((tokens, shape.layers, shape.used), np.int32)
    for token in range(tokens):
        logits = rng.standard_normal(scales.shape, np.float32) * scales
        picks[token] = np.argpartition(-logits, shape.used - 1, axis=1)[:, : shape.used]
    return lru_hit_rate(picks, slots, _WARM_TOKENS)


def solve_sigma(shape: Shape, hit_rate: float, slots: int, seed: int) -> tuple[float, float]:
    """The skew at which an LRU of `slots` reaches `hit_rate`, and the rate it reaches. Raises UserError."""
    low, high = 0.0, _SIGMA_LIMIT
    least, most = (simulated_hit_rate(shape, sigma, slots, seed) for sigma in (low, high))
    if not least - _PRECISION <= hit_rate <= most + _PRECISION:
        raise UserError(
            f"A hit rate of {hit_rate:.2f} cannot be had with {slots} slots of this shape: routers reach "
            f"from {least:.2f} (even) to {most:.2f} (very skewed); change --hit-rate or --slots-fraction."
        )
    for _ in range(30):
        sigma = (low + high) / 2
        reached = simulated_hit_rate(shape, sigma, slots, seed)
        if abs(reached - hit_rate) <= _PRECISION:
            break
        low, high = (sigma, high) if reached < hit_rate else (low, sigma)
    return sigma, reached


# The file


class _Pool:
    """Quantized random weights, reused from many places so that a file of any size is written from a few MB."""

    def __init__(
        self, rng: np.random.Generator, kind: GGMLQuantizationType, row: int, gain: float, slices: int
    ) -> None:
        """For matrices with rows of `row` elements, scaled to keep a vector's size times `gain`, and
        for at most `slices` different ones."""
        units = _POOL_UNITS
        while units < 4 * slices and units < _MOST_POOL_UNITS:
            units *= 2
        weights = rng.standard_normal((units, _UNIT), np.float32) * np.float32(gain / np.sqrt(row))
        packed = quantize(weights, kind) if kind != GGMLQuantizationType.F16 else weights.astype(np.float16)
        self.units = packed.view(np.uint8).reshape(units, -1)
        self._starts = rng.permutation(units)
        self._taken = 0

    def expert(self, out: NDArray[np.uint8]) -> None:
        """Fills one expert's slice, (units, unit bytes), from a place that no other expert has."""
        start = int(self._starts[self._taken % len(self._starts)])
        self._taken += 1
        done = 0
        while done < len(out):
            part = self.units[start : start + len(out) - done]
            out[done : done + len(part)] = part
            done += len(part)
            start = 0

    def matrix(self, rng: np.random.Generator, rows: int, row_units: int) -> NDArray[np.uint8]:
        """A matrix, (rows, row bytes), each row from a place of its own."""
        starts = rng.integers(0, len(self.units), rows)
        index = (starts[:, None] + np.arange(row_units)) % len(self.units)
        packed: NDArray[np.uint8] = self.units[index].reshape(rows, -1)
        return packed


def plan_tensors(
    shape: Shape, n_vocab: int, scales: Floats, seed: int
) -> Iterator[tuple[str, tuple[int, ...], GGMLQuantizationType, Callable[[], NDArray[Any]]]]:
    """(name, shape in numpy order and elements, type, maker) of every tensor, in file order."""
    rng = np.random.default_rng((seed, 3))
    f32, f16 = GGMLQuantizationType.F32, GGMLQuantizationType.F16
    d, ff, e = shape.embd, shape.ff, shape.experts
    q, kv = shape.heads * _HEAD, shape.kv_heads * _HEAD
    slices = 2 * shape.layers * e
    pools: dict[tuple[GGMLQuantizationType, int, float], _Pool] = {}

    def pool(kind: GGMLQuantizationType, row: int, gain: float) -> _Pool:
        key = (kind, row, gain)
        if key not in pools:
            pools[key] = _Pool(rng, kind, row, gain, slices)
        return pools[key]

    def matrix(name: str, rows: int, row: int, gain: float = 1.0, kind: GGMLQuantizationType = shape.kind) -> Any:
        return name, (rows, row), kind, lambda: pool(kind, row, gain).matrix(rng, rows, row // _UNIT)

    def experts(name: str, rows: int, row: int, gain: float = 1.0) -> Any:
        def make() -> NDArray[Any]:
            source = pool(shape.kind, row, gain)
            out = np.empty((e, rows * row // _UNIT, source.units.shape[1]), np.uint8)
            for one in out:
                source.expert(one)
            return out

        return name, (e, rows, row), shape.kind, make

    def ones(name: str, n: int) -> Any:
        return name, (n,), f32, lambda: np.ones(n, np.float32)

    def router(layer: int) -> Floats:
        rows = np.random.default_rng((seed, 4, layer)).standard_normal((e, d), np.float32)
        rows *= scales[layer][:, None] / np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    yield matrix("token_embd.weight", n_vocab, d, gain=d**0.5, kind=f16)
    yield matrix("output.weight", n_vocab, d)
    yield ones("output_norm.weight", d)
    for layer in range(shape.layers):
        b = f"blk.{layer}."
        yield ones(b + "attn_norm.weight", d)
        yield matrix(b + "attn_q.weight", q, d)
        yield matrix(b + "attn_k.weight", kv, d)
        yield matrix(b + "attn_v.weight", kv, d)
        yield matrix(b + "attn_output.weight", d, q, gain=shape.residual_gain)
        yield ones(b + "attn_q_norm.weight", _HEAD)
        yield ones(b + "attn_k_norm.weight", _HEAD)
        yield ones(b + "ffn_norm.weight", d)
        yield b + "ffn_gate_inp.weight", (e, d), f32, partial(router, layer)
        yield experts(b + "ffn_gate_exps.weight", ff, d)
        yield experts(b + "ffn_up_exps.weight", ff, d)
        yield experts(b + "ffn_down_exps.weight", d, ff, gain=shape.residual_gain)


def write_model(
    path: Path,
    vocabulary: Path,
    shape: Shape,
    sigma: float,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Writes the model with the tokenizer of `vocabulary`, a GGUF. Memory: one tensor and a few MB.

    A file that cannot be written whole is removed. Raises UserError.
    """
    shape.check()
    if path.exists():
        raise UserError(f"{path} is there already: remove it or name another file.")
    read_info(vocabulary)  # says what is wrong with it, where gguf would show a trace
    reader = GGUFReader(vocabulary)
    tokens = reader.fields.get("tokenizer.ggml.tokens")
    if tokens is None:
        raise UserError(f"{vocabulary} holds no vocabulary: give --vocab a language model's GGUF.")
    scales = router_scales(shape, sigma, seed)
    tensors = list(plan_tensors(shape, len(tokens.data), scales, seed))
    sizes = [_bytes_of(dims, kind) for _, dims, kind, _ in tensors]
    part = path.with_name(path.name + ".part")
    try:
        free = shutil.disk_usage(path.parent).free
        if sum(sizes) + (64 << 20) > free:
            raise UserError(f"{path} needs {sum(sizes) / 1e9:.1f} GB where {free / 1e9:.1f} GB are free.")
        writer = GGUFWriter(part, "qwen3moe")
        try:
            _add_metadata(writer, reader, shape, len(tokens.data), sigma)
            for (name, dims, kind, _), size in zip(tensors, sizes, strict=True):
                writer.add_tensor_info(name, dims, np.dtype(np.float32), size, raw_dtype=kind)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            done = 0
            for (_, _, _, make), size in zip(tensors, sizes, strict=True):
                writer.write_tensor_data(make())
                done += size
                if progress:
                    progress(done, sum(sizes))
        finally:
            writer.close()
        part.replace(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        part.unlink(missing_ok=True)


def _bytes_of(dims: tuple[int, ...], kind: GGMLQuantizationType) -> int:
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    return int(np.prod(dims, dtype=np.int64)) // elements * size


def _add_metadata(w: GGUFWriter, reader: GGUFReader, shape: Shape, n_vocab: int, sigma: float) -> None:
    w.add_name(f"random qwen3moe {shape.layers}x{shape.experts} {shape.kind.name}")
    w.add_description(f"Random weights, for measuring speed; router skew {sigma:.4f}")
    for key, field in reader.fields.items():
        if key.startswith("tokenizer."):
            sub = field.types[1] if len(field.types) > 1 else None
            w.add_key_value(key, field.contents(), field.types[0], sub)
    w.add_block_count(shape.layers)
    w.add_context_length(shape.context)
    w.add_embedding_length(shape.embd)
    w.add_feed_forward_length(shape.ff * shape.used)
    w.add_head_count(shape.heads)
    w.add_head_count_kv(shape.kv_heads)
    w.add_key_length(_HEAD)
    w.add_value_length(_HEAD)
    w.add_rope_dimension_count(_HEAD)
    w.add_rope_freq_base(1e6)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_vocab_size(n_vocab)
    w.add_expert_count(shape.experts)
    w.add_expert_used_count(shape.used)
    w.add_expert_feed_forward_length(shape.ff)


# The command


def add_parser(subparsers: Any) -> None:
    """Adds `make-model` to bench's subparsers."""
    default = Shape()
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "make-model", help="write a model with random weights and routers of a chosen hit rate", description=__doc__
    )
    parser.add_argument("out", metavar="OUT", type=Path, help="the GGUF to write")
    parser.add_argument("--vocab", metavar="GGUF", type=Path, help="whose tokenizer to use (default: the demo model's)")
    for name, meaning in (
        ("layers", "layers"),
        ("experts", "experts of a layer"),
        ("used", "experts that a token uses"),
        ("embd", "embedding length"),
        ("ff", "neurons of an expert"),
        ("context", "trained context length"),
    ):
        value = getattr(default, name)
        parser.add_argument(f"--{name}", metavar="N", type=int, default=value, help=f"{meaning} (default: {value})")
    parser.add_argument("--type", choices=TYPES, default="q4_0", help="tensor type (default: q4_0)")
    parser.add_argument("--hit-rate", metavar="RATE", type=float, default=0.90, help="0 to 1 (default: 0.90)")
    parser.add_argument(
        "--slots-fraction", metavar="SHARE", type=float, default=0.5, help="slots over all experts (default: 0.5)"
    )
    parser.add_argument("--router-sigma", metavar="SKEW", type=float, help="the skew itself, in place of --hit-rate")
    parser.add_argument("--seed", metavar="N", type=int, default=0)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Solves the skew, writes the file, prints what was reached. Raises UserError."""
    shape = Shape(
        args.layers, args.experts, args.used, args.embd, args.ff, GGMLQuantizationType[args.type.upper()], args.context
    )
    shape.check()
    if not 0 < args.slots_fraction <= 1:
        raise UserError("--slots-fraction must be above 0 and at most 1.")
    if args.seed < 0 or (args.router_sigma is not None and args.router_sigma < 0):
        raise UserError("--seed and --router-sigma must not be negative.")
    slots = max(1, round(args.slots_fraction * shape.layers * shape.experts))
    if args.router_sigma is None:
        sigma, reached = solve_sigma(shape, args.hit_rate, slots, args.seed)
    else:
        sigma, reached = args.router_sigma, simulated_hit_rate(shape, args.router_sigma, slots, args.seed)
    shown = -1

    def progress(done: int, total: int) -> None:
        nonlocal shown
        percent = 100 * done // total
        if percent != shown and sys.stderr.isatty():
            shown = percent
            print(f"\r{percent:3} % of {total / 1e9:.2f} GB", end="\n" if done == total else "", file=sys.stderr)

    write_model(args.out, args.vocab or source_model(), shape, sigma, args.seed, progress)
    print(f"{args.out}: {args.out.stat().st_size / 1e9:.2f} GB")
    print(f"router skew {sigma:.4f}: simulated hit rate {reached:.3f} of an LRU with {slots} slots, random tokens")
    return 0
