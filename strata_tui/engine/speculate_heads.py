"""Which models have NextN heads (multi-token prediction) that the installed llama.cpp can draft with."""

from __future__ import annotations

from .gguf_info import GgufInfo

# Architectures with a graph for their heads in llama.cpp, and the tensors that it takes for granted in each NextN
# block. For another architecture it would run the whole model in the heads' place; and a number of heads, or a block,
# that a graph does not expect ends the process, so nothing of that is left to it.
_ROUTER = ("ffn_gate_inp",)
_LATENT = tuple("attn_q_a attn_q_a_norm attn_q_b attn_kv_a_mqa attn_kv_a_norm attn_k_b attn_v_b".split())
_SHARED = tuple("ffn_norm ffn_down_exps ffn_gate_shexp ffn_up_shexp ffn_down_shexp".split())
_OWN_NORM = ("nextn.shared_head_norm",)
_ONE_HEAD = {
    "bailingmoe3": _OWN_NORM,
    "cohere2moe": _ROUTER,
    "deepseek2": (*_ROUTER, *_LATENT, *_SHARED),
    "deepseek32": (*_ROUTER, *_LATENT),
    "deepseek4": _ROUTER,
    "glm-dsa": (*_ROUTER, *_LATENT),
    "glm4moe": _ROUTER,
    "nemotron_h_moe": (*_ROUTER, *_OWN_NORM),
    "qwen35": (),
    "qwen35moe": _ROUTER,
    "qwen3next": _ROUTER,
}
_CHAINED = {  # one head for each draft
    "hy_v3": (),
    "mimo2": ("attn_qkv", "ffn_gate", "ffn_up", "ffn_down"),
    "step35": (),
}
_ALWAYS = ("nextn.eh_proj", "nextn.enorm", "nextn.hnorm")


def count_heads(info: GgufInfo, most: int) -> tuple[int, str]:
    """(heads to draft with, why there are none). `most`: heads that can be chained."""
    said = info.metadata.get(f"{info.architecture}.nextn_predict_layers")
    heads = said if isinstance(said, int) else 0
    if heads < 1:
        return 0, "the model has no NextN heads"
    needed = (_ONE_HEAD | _CHAINED).get(info.architecture)
    if needed is None:
        return 0, f"llama.cpp does not run the NextN heads of {info.architecture}"
    if heads > (most if info.architecture in _CHAINED else 1):
        return 0, f"llama.cpp does not run {heads} NextN heads of {info.architecture}"
    names = {t.name for t in info.tensors}
    first = info.n_layers - heads
    for layer in range(first, info.n_layers):
        absent = [part for part in (*_ALWAYS, *needed) if f"blk.{layer}.{part}.weight" not in names]
        if any(part in _ALWAYS for part in absent):
            return 0, "the file leaves out the model's NextN heads"
        if absent:
            return 0, f"the model's NextN block has no {absent[0]}, which llama.cpp wants there"
    if first < 1:
        return 0, "the file holds the model's NextN heads alone"
    return heads, ""
