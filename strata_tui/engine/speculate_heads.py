"""Which models have NextN heads (multi-token prediction) that the installed llama.cpp can draft with."""

from __future__ import annotations

from .gguf_info import GgufInfo

# Architectures with a graph for their heads in llama.cpp. For another one it would run the whole model in the
# heads' place, and a number of heads, or a tensor, that a graph does not expect ends the process.
_ONE_HEAD = frozenset(
    "bailingmoe3 cohere2moe deepseek2 deepseek32 deepseek4 glm-dsa glm4moe glm5-next nemotron_h_moe "
    "qwen35 qwen35moe qwen3next".split()
)
_CHAINED = frozenset("hy_v3 mimo2 step35".split())  # one head for each draft
_TENSORS = ("eh_proj", "enorm", "hnorm")


def count_heads(info: GgufInfo, most: int) -> tuple[int, str]:
    """(heads to draft with, why there are none). `most`: heads that can be chained."""
    said = info.metadata.get(f"{info.architecture}.nextn_predict_layers")
    heads = said if isinstance(said, int) else 0
    if heads < 1:
        return 0, "the model has no NextN heads"
    if info.architecture not in _ONE_HEAD | _CHAINED:
        return 0, f"llama.cpp does not run the NextN heads of {info.architecture}"
    if heads > (most if info.architecture in _CHAINED else 1):
        return 0, f"llama.cpp does not run {heads} NextN heads of {info.architecture}"
    names = {t.name for t in info.tensors}
    first = info.n_layers - heads
    wanted = [f"blk.{layer}.nextn.{part}.weight" for layer in range(first, info.n_layers) for part in _TENSORS]
    if first < 1 or not all(name in names for name in wanted):
        return 0, "the file leaves out the model's NextN heads"
    return heads, ""
