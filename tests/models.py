"""Small GGUFs for tests: random models of many architectures, and files that are broken on purpose.

Every builder takes the file to write and returns it. The models are a few MB, load in plain llama.cpp and
answer with noise; what counts is that different tokens pick different experts and that no two experts
share their bytes. Sizes are awkward on purpose: 96 is three quantization blocks, and no multiple of 64.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q
from gguf import GGUFWriter, TokenType
from gguf.quants import quantize
from numpy.typing import NDArray

Floats = NDArray[np.float32]

WIDTH, FF, HEADS, HEAD = 128, 96, 4, 32  # embedding length, neurons of an expert, attention heads and their size
EXPERTS, USED, LAYERS, CONTEXT = 16, 4, 4, 1024
_RESIDUAL = 0.4  # of what a block adds: with large additions every token ends up picking the same experts

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# As the kinds of Qwen3 and gpt-oss ask for thinking: a switch that closes it at once, and a word for the effort.
SWITCH_TEMPLATE = (
    CHAT_TEMPLATE.removesuffix("{% endif %}")
    + "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
    + "{% endif %}"
)
EFFORT_TEMPLATE = (
    "{% if not reasoning_effort is defined %}{% set reasoning_effort = 'medium' %}{% endif %}"
    "{{ '<|im_start|>system\nReasoning: ' + reasoning_effort + '<|im_end|>\n' }}" + CHAT_TEMPLATE
)
_WORDS = """the of and to in is that it was for on are as with his they at be this have from or one had by word but not
what all were we when your can said there use an each which she do how their if will up other about out many then them
these so some her would make like him into time has look two more write go see number no way could people my than first
water been call who oil its now find long down day did get come made may part expert router token slot arena mirror
""".split()


def vocabulary() -> list[tuple[str, float, TokenType]]:
    """A SentencePiece vocabulary that can spell any text: (piece, score, type)."""
    tokens = [("<unk>", 0.0, TokenType.UNKNOWN), ("<s>", 0.0, TokenType.CONTROL), ("</s>", 0.0, TokenType.CONTROL)]
    tokens += [(f"<0x{byte:02X}>", 0.0, TokenType.BYTE) for byte in range(256)]
    tokens += [(name, 0.0, TokenType.CONTROL) for name in ("<|im_start|>", "<|im_end|>")]
    pieces = dict.fromkeys(["\u2581", *(chr(c) for c in range(33, 127))])  # ordered, no piece twice
    for word in _WORDS:  # a word can only be reached by merging two pieces, so its beginnings are pieces too
        pieces |= dict.fromkeys("\u2581" + word[:end] for end in range(1, len(word) + 1))
    tokens += [(piece, -float(i), TokenType.NORMAL) for i, piece in enumerate(pieces)]
    return tokens


class TinyWriter:
    """A GGUF of one architecture with the vocabulary in it, random weights and seeded."""

    def __init__(
        self, path: Path, arch: str, seed: int, *, max_tensors: int = 0, n_vocab: int = 0, template: str = CHAT_TEMPLATE
    ) -> None:
        """`n_vocab`: of a vocabulary of bare numbers, which spells no text; 0: the one that does."""
        self.path, self.arch = path, arch
        self.rng = np.random.default_rng(seed)
        self.w = GGUFWriter(path, arch, split_max_tensors=max_tensors)
        self.w.add_name(f"tiny {arch}")
        if n_vocab:
            self.n_vocab = n_vocab
            self.w.add_tokenizer_model("none")
            return
        tokens = vocabulary()
        self.n_vocab = len(tokens)
        self.w.add_tokenizer_model("llama")
        self.w.add_tokenizer_pre("default")
        self.w.add_token_list([piece for piece, _, _ in tokens])
        self.w.add_token_scores([score for _, score, _ in tokens])
        self.w.add_token_types([int(kind) for _, _, kind in tokens])
        self.w.add_bos_token_id(1)
        self.w.add_eos_token_id(2)
        self.w.add_eot_token_id(260)
        self.w.add_unk_token_id(0)
        self.w.add_add_bos_token(False)
        self.w.add_chat_template(template)

    def keys(self, **values: int | float | bool | str | list[int]) -> None:
        """Adds "<arch>.<key>" for each; a double underscore stands for a dot."""
        for name, value in values.items():
            key = f"{self.arch}.{name.replace('__', '.')}"
            if isinstance(value, bool):
                self.w.add_bool(key, value)
            elif isinstance(value, int):
                self.w.add_uint32(key, value)
            elif isinstance(value, float):
                self.w.add_float32(key, value)
            elif isinstance(value, str):
                self.w.add_string(key, value)
            else:
                self.w.add_array(key, value)

    def common(self, *, layers: int = LAYERS, kv_heads: int = 2, head: int = HEAD, rope: int = HEAD) -> None:
        self.keys(
            block_count=layers,
            context_length=CONTEXT,
            embedding_length=WIDTH,
            feed_forward_length=2 * WIDTH,
            attention__head_count=HEADS,
            attention__head_count_kv=kv_heads,
            attention__key_length=head,
            attention__value_length=head,
            attention__layer_norm_rms_epsilon=1e-6,
            rope__dimension_count=rope,
            rope__freq_base=10000.0,
            vocab_size=self.n_vocab,
        )

    def moe(self, **more: Any) -> None:
        self.keys(expert_count=EXPERTS, expert_used_count=USED, expert_feed_forward_length=FF, **more)

    def raw(self, name: str, data: Floats, kind: Q = Q.F32) -> None:
        if kind == Q.F32:
            self.w.add_tensor(name, np.ascontiguousarray(data, np.float32))
        elif kind == Q.F16:
            self.w.add_tensor(name, np.ascontiguousarray(data, np.float16))
        else:
            self.w.add_tensor(name, quantize(np.ascontiguousarray(data, np.float32), kind), raw_dtype=kind)

    def random(self, name: str, *shape: int, kind: Q = Q.F32, gain: float = 1.0) -> None:
        """Normal weights that keep a vector's size; `shape` in numpy order (the row length last)."""
        scale = np.float32(gain / np.sqrt(shape[-1]))
        self.raw(name, self.rng.standard_normal(shape, np.float32) * scale, kind)

    def norm(self, name: str, size: int = WIDTH) -> None:
        self.raw(name, 1 + 0.1 * self.rng.standard_normal(size, np.float32))

    def head(self, kind: Q = Q.Q8_0, gain: float = 3.0) -> None:
        self.raw("token_embd.weight", self.rng.standard_normal((self.n_vocab, WIDTH), np.float32), Q.F16)
        self.norm("output_norm.weight")
        self.random("output.weight", self.n_vocab, WIDTH, kind=kind, gain=gain)

    def attention(
        self, b: str, *, kv_heads: int = 2, qk_norm: bool = False, bias: bool = False, q_gain: int = 1
    ) -> None:
        """Grouped-query attention; `q_gain` 2: the query projection also makes an output gate."""
        self.random(b + "attn_q.weight", HEADS * HEAD * q_gain, WIDTH, kind=Q.Q8_0)
        self.random(b + "attn_k.weight", kv_heads * HEAD, WIDTH, kind=Q.Q8_0)
        self.random(b + "attn_v.weight", kv_heads * HEAD, WIDTH, kind=Q.Q8_0)
        self.random(b + "attn_output.weight", WIDTH, HEADS * HEAD, kind=Q.Q8_0, gain=_RESIDUAL)
        if qk_norm:
            self.norm(b + "attn_q_norm.weight", HEAD)
            self.norm(b + "attn_k_norm.weight", HEAD)
        if bias:
            for name, size in (("q", HEADS * HEAD), ("k", kv_heads * HEAD), ("v", kv_heads * HEAD), ("output", WIDTH)):
                self.raw(f"{b}attn_{name}.bias", 0.1 * self.rng.standard_normal(size, np.float32))

    def experts(
        self, b: str, gate: Q, down: Q, *, family: str = "exps", n: int = EXPERTS, ff: int = FF, fused: bool = False
    ) -> None:
        if fused:
            self.random(f"{b}ffn_gate_up_{family}.weight", n, 2 * ff, WIDTH, kind=gate)
        else:
            self.random(f"{b}ffn_gate_{family}.weight", n, ff, WIDTH, kind=gate)
            self.random(f"{b}ffn_up_{family}.weight", n, ff, WIDTH, kind=gate)
        self.random(f"{b}ffn_down_{family}.weight", n, WIDTH, ff, kind=down, gain=_RESIDUAL * 3)

    def router(self, b: str) -> None:
        self.random(b + "ffn_gate_inp.weight", EXPERTS, WIDTH, gain=1.5)

    def shared_expert(self, b: str, ff: int = FF) -> None:
        self.dense(b, ff, "_shexp")

    def dense(self, b: str, ff: int, suffix: str = "", kind: Q = Q.Q8_0) -> None:
        self.random(f"{b}ffn_gate{suffix}.weight", ff, WIDTH, kind=kind)
        self.random(f"{b}ffn_up{suffix}.weight", ff, WIDTH, kind=kind)
        self.random(f"{b}ffn_down{suffix}.weight", WIDTH, ff, kind=kind, gain=_RESIDUAL)

    def nextn(self, layer: int, *, echo: bool = False, broken: bool = False) -> None:
        """What a NextN block has beside a layer's own tensors. Its drafts are noise; with `echo` they are often right
        where the model itself has few layers: the block gives its head the last token's embedding, which is most of
        what the model's own head gets. `broken`: its head gets no numbers.
        """
        b = f"blk.{layer}.nextn."
        if echo:
            own = np.eye(WIDTH)
            self.raw(b + "eh_proj.weight", np.hstack([own, 0.1 * np.eye(WIDTH)]).astype(np.float32))
        else:
            self.random(b + "eh_proj.weight", WIDTH, 2 * WIDTH)
        for name in ("enorm", "hnorm", "shared_head_norm"):
            self.raw(f"{b}{name}.weight", np.full(WIDTH, np.nan if broken and name == "shared_head_norm" else 1.0))

    def close(self) -> Path:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_tensors_to_file()
        self.w.close()
        return self.path


def qwen3moe(path: Path, *, seed: int = 0, max_tensors: int = 0, template: str = CHAT_TEMPLATE) -> Path:
    """Plain MoE. Layers differ in the type of their down projections, so there are two sizes of experts."""
    t = TinyWriter(path, "qwen3moe", seed, max_tensors=max_tensors, template=template)
    t.common()
    t.moe()
    t.head()
    for layer in range(LAYERS):
        b = f"blk.{layer}."
        t.norm(b + "attn_norm.weight")
        t.attention(b, qk_norm=True)
        t.norm(b + "ffn_norm.weight")
        t.router(b)
        t.experts(b, Q.Q4_0, Q.Q8_0 if layer % 2 else Q.Q4_0)
    return t.close()


def qwen3moe_split(path: Path, *, seed: int = 0) -> Path:
    """The same model in three shards; returns the first. `path` names the whole: NAME.gguf."""
    qwen3moe(path, seed=seed, max_tensors=18)
    shards = sorted(path.parent.glob(f"{path.stem}-*-of-*.gguf"))
    if len(shards) != 3:
        raise AssertionError(f"expected three shards, got {shards}")
    return shards[0]


def gpt_oss(path: Path, *, seed: int = 0) -> Path:
    """Biases of experts and router, attention sinks, every second layer with a sliding window, MXFP4."""
    t = TinyWriter(path, "gpt-oss", seed)
    t.common()
    t.moe(attention__sliding_window=24)
    t.head()
    for layer in range(LAYERS):
        b = f"blk.{layer}."
        t.norm(b + "attn_norm.weight")
        t.attention(b, bias=True)
        t.raw(b + "attn_sinks.weight", t.rng.standard_normal(HEADS, np.float32))
        t.norm(b + "post_attention_norm.weight")
        t.router(b)
        t.raw(b + "ffn_gate_inp.bias", 0.2 * t.rng.standard_normal(EXPERTS, np.float32))
        t.experts(b, Q.MXFP4, Q.MXFP4)
        for role, size in (("gate", FF), ("up", FF), ("down", WIDTH)):
            t.raw(f"{b}ffn_{role}_exps.bias", 0.2 * t.rng.standard_normal((EXPERTS, size), np.float32))
    return t.close()


def deepseek2(path: Path, *, seed: int = 0, fused: bool = False, heads: int = 0) -> Path:
    """Latent attention, a dense first layer, a shared expert, and routing that first picks 2 of 4 groups.

    `heads`: NextN blocks behind the layers.
    """
    t = TinyWriter(path, "deepseek2", seed)
    nope, rope, value, q_rank, kv_rank = 32, 16, 32, 64, 64
    t.common(layers=LAYERS + heads, kv_heads=1, head=kv_rank + rope, rope=rope)
    t.keys(
        attention__q_lora_rank=q_rank,
        attention__kv_lora_rank=kv_rank,
        attention__key_length_mla=nope + rope,
        attention__value_length_mla=value,
        leading_dense_block_count=1,
        **({"nextn_predict_layers": heads} if heads else {}),
    )
    t.moe(
        expert_shared_count=1,
        expert_group_count=4,
        expert_group_used_count=2,
        expert_gating_func=int(gguf.ExpertGatingFuncType.SIGMOID),
        expert_weights_norm=True,
        expert_weights_scale=1.5,
    )
    t.head()
    for layer in range(LAYERS + heads):
        b = f"blk.{layer}."
        if layer >= LAYERS:
            t.nextn(layer)
        t.norm(b + "attn_norm.weight")
        t.random(b + "attn_q_a.weight", q_rank, WIDTH, kind=Q.Q8_0)
        t.norm(b + "attn_q_a_norm.weight", q_rank)
        t.random(b + "attn_q_b.weight", HEADS * (nope + rope), q_rank, kind=Q.Q8_0)
        t.random(b + "attn_kv_a_mqa.weight", kv_rank + rope, WIDTH, kind=Q.Q8_0)
        t.norm(b + "attn_kv_a_norm.weight", kv_rank)
        t.random(b + "attn_k_b.weight", HEADS, kv_rank, nope, kind=Q.Q8_0)
        t.random(b + "attn_v_b.weight", HEADS, value, kv_rank, kind=Q.Q8_0)
        t.random(b + "attn_output.weight", WIDTH, HEADS * value, kind=Q.Q8_0, gain=_RESIDUAL)
        t.norm(b + "ffn_norm.weight")
        if layer == 0:
            t.dense(b, 2 * WIDTH)
            continue
        t.router(b)
        t.raw(b + "exp_probs_b.bias", 0.02 * t.rng.standard_normal(EXPERTS, np.float32))
        t.experts(b, Q.F16, Q.F16, fused=fused)
        t.shared_expert(b)
    return t.close()


def deepseek2_fused(path: Path, *, seed: int = 0) -> Path:
    """As deepseek2, with gate and up in one tensor: experts of two slices."""
    return deepseek2(path, seed=seed, fused=True)


def hybrid(
    path: Path,
    *,
    arch: str = "qwen3next",
    seed: int = 0,
    fused: bool = False,
    layers: int = LAYERS,
    every: int = 4,
    heads: int = 0,
    echo: bool = False,
) -> Path:
    """Layers with a recurrent state (gated delta net), each `every`-th one with attention; a gated shared expert.

    `heads`: NextN blocks behind the layers.
    """
    t = TinyWriter(path, arch, seed)
    state, k_heads, v_heads, kernel = 32, 2, 4, 4
    keys, values = state * k_heads, state * v_heads
    t.common(layers=layers + heads, rope=16)
    t.moe(expert_shared_feed_forward_length=FF)
    t.keys(
        ssm__conv_kernel=kernel,
        ssm__inner_size=values,
        ssm__state_size=state,
        ssm__time_step_rank=v_heads,
        ssm__group_count=k_heads,
        full_attention_interval=every,
        **({"nextn_predict_layers": heads} if heads else {}),
    )
    apart = arch == "qwen35moe"  # beta and alpha in tensors of their own, and sections of positions
    if apart:
        t.keys(rope__dimension_sections=[3, 3, 2, 0])
    t.head()
    for layer in range(layers + heads):
        b = f"blk.{layer}."
        t.norm(b + "attn_norm.weight")
        if layer % every == every - 1 or layer >= layers:
            t.attention(b, qk_norm=True, q_gain=2)
        else:
            t.random(b + "attn_qkv.weight", 2 * keys + values, WIDTH, kind=Q.Q8_0)
            t.random(b + "attn_gate.weight", values, WIDTH, kind=Q.Q8_0)
            t.random(b + "ssm_conv1d.weight", 2 * keys + values, kernel)
            t.raw(b + "ssm_dt.bias", t.rng.standard_normal(v_heads, np.float32))
            t.raw(b + "ssm_a", -np.exp(t.rng.uniform(-2, 1, v_heads)).astype(np.float32))
            for name in ("beta", "alpha") if apart else ("ba",):
                t.random(f"{b}ssm_{name}.weight", v_heads if apart else 2 * v_heads, WIDTH)
            t.norm(b + "ssm_norm.weight", state)
            t.random(b + "ssm_out.weight", WIDTH, values, kind=Q.Q8_0, gain=_RESIDUAL)
        t.norm(b + "post_attention_norm.weight")
        t.router(b)
        t.experts(b, Q.Q8_0, Q.Q8_0, fused=fused)
        t.random(b + "ffn_gate_inp_shexp.weight", WIDTH)
        t.shared_expert(b)
        if layer >= layers:
            t.nextn(layer, echo=echo)
    return t.close()


def qwen3next(path: Path, *, seed: int = 0) -> Path:
    """Three layers with a recurrent state and one with attention."""
    return hybrid(path, seed=seed)


def qwen3next_fused(path: Path, *, seed: int = 0) -> Path:
    """As qwen3next, with gate and up in one tensor."""
    return hybrid(path, seed=seed, fused=True)


def grovemoe(path: Path, *, seed: int = 0) -> Path:
    """Two families of experts in each layer: 16 `exps`, and 4 smaller `chexps` chosen by the same router."""
    t = TinyWriter(path, "grovemoe", seed)
    t.common()
    t.moe(expert_chunk_feed_forward_length=32, expert_group_scale=0.05, experts_per_group=4)
    t.head()
    for layer in range(LAYERS):
        b = f"blk.{layer}."
        t.norm(b + "attn_norm.weight")
        t.attention(b, qk_norm=True)
        t.norm(b + "ffn_norm.weight")
        t.router(b)
        t.experts(b, Q.Q4_0, Q.Q4_0)
        t.experts(b, Q.Q8_0, Q.Q8_0, family="chexps", n=EXPERTS // 4, ff=32)
    return t.close()


def llama_dense(path: Path, *, seed: int = 0, arch: str = "llama") -> Path:
    """No experts at all."""
    t = TinyWriter(path, arch, seed)
    t.common()
    t.head()
    for layer in range(LAYERS):
        b = f"blk.{layer}."
        t.norm(b + "attn_norm.weight")
        t.attention(b)
        t.norm(b + "ffn_norm.weight")
        t.dense(b, 2 * WIDTH, kind=Q.Q4_0)
    return t.close()


Builder = Callable[[Path], Path]

MOE_MODELS: dict[str, Builder] = {
    "qwen3moe": qwen3moe,
    "qwen3moe_split": qwen3moe_split,
    "gpt_oss": gpt_oss,
    "deepseek2": deepseek2,
    "deepseek2_fused": deepseek2_fused,
    "qwen3next": qwen3next,
    "qwen3next_fused": qwen3next_fused,
    "grovemoe": grovemoe,
}
MODELS: dict[str, Builder] = {**MOE_MODELS, "llama_dense": llama_dense}


# Broken files


def not_gguf(path: Path) -> Path:
    path.write_bytes(b"PK\x03\x04 something else entirely" * 10)
    return path


def truncated_header(path: Path) -> Path:
    """Ends in the middle of the vocabulary."""
    whole = qwen3moe(path).read_bytes()
    path.write_bytes(whole[:3000])
    return path


def truncated_data(path: Path, missing: int = 5000) -> Path:
    """A whole header, and `missing` bytes too few of tensor data."""
    whole = qwen3moe(path).read_bytes()
    path.write_bytes(whole[:-missing])
    return path


def unknown_architecture(path: Path) -> Path:
    """A well-formed file that llama.cpp cannot know."""
    return llama_dense(path, arch="zzz-unheard-of")


def missing_shard(path: Path) -> Path:
    """A split model without its second shard; returns the first."""
    first = qwen3moe_split(path)
    first.with_name(first.name.replace("-00001-", "-00002-")).unlink()
    return first


def big_endian(path: Path) -> Path:
    path.write_bytes(b"GGUF" + struct.pack(">IQQ", 3, 1, 1) + bytes(64))
    return path


def old_version(path: Path) -> Path:
    path.write_bytes(b"GGUF" + struct.pack("<III", 1, 1, 1) + bytes(64))
    return path


def header_only(
    path: Path,
    tensors: Sequence[tuple[str, tuple[int, ...], int]],
    metadata: dict[str, int | str | list[int]] | None = None,
    data_bytes: int = 0,
) -> Path:
    """A header by hand, with what GGUFWriter refuses to write; `data_bytes` zeros follow.

    Tensors are (name, dims from ne0 on, ggml type), one after the other; one of an unknown type takes no room.
    """
    from strata_tui.engine.gguf_header import BLOCK_SIZES

    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata or {}))]

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    for key, value in (metadata or {}).items():
        parts.append(text(key))
        if isinstance(value, str):
            parts.append(struct.pack("<I", 8) + text(value))
        elif isinstance(value, list):
            parts.append(struct.pack(f"<IIQ{len(value)}I", 9, 4, len(value), *value))
        else:
            parts.append(struct.pack("<II", 4, value))
    offset = 0
    for name, dims, kind in tensors:
        parts.append(text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset))
        if kind in BLOCK_SIZES:
            elements, size = BLOCK_SIZES[kind]
            nbytes = int(np.prod(dims)) // elements * size
            offset += nbytes + -nbytes % 32
    header = b"".join(parts)
    path.write_bytes(header + bytes(-len(header) % 32) + bytes(data_bytes))
    return path
