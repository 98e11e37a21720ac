"""A NextN block that is trained: one transformer layer that says a model's next hidden state from the last one.

At position p it reads the token x[p] and the model's final hidden state at p - 1, attends to the positions
before, and gives what the model's final hidden state at p would be; the model's own output matrix makes logits
of that. The loss is the cross entropy of the block's distribution against the model's. Its gradient at the
hidden state is W' (softmax(W h) - softmax(W h_model)), which is computed first, so that no gradient passes
through the large matrix W.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .ggml import F16, F32, I32, NEOX, Array, Ggml, Tensor

TOKEN, STATE = "token_proj", "state_proj"


@dataclass(frozen=True, slots=True)
class Shape:
    """Of the model, and of a training batch: `texts` pieces of `length` tokens."""

    width: int
    heads: int
    kv_heads: int
    neurons: int
    vocab: int
    rope_base: float
    epsilon: float
    length: int
    texts: int

    @property
    def tokens(self) -> int:
        return self.length * self.texts

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes (numpy's order). Query and key rows are in NEOX order; a GGUF has the two projections
        of token and state side by side.
        """
        d, kv = self.width, self.width // self.heads * self.kv_heads
        return {
            TOKEN: (d, d),
            STATE: (d, d),
            "nextn.enorm.weight": (d,),
            "nextn.hnorm.weight": (d,),
            "nextn.shared_head_norm.weight": (d,),
            "attn_norm.weight": (d,),
            "attn_q.weight": (d, d),
            "attn_k.weight": (kv, d),
            "attn_v.weight": (kv, d),
            "attn_output.weight": (d, d),
            "ffn_norm.weight": (d,),
            "ffn_gate.weight": (self.neurons, d),
            "ffn_up.weight": (self.neurons, d),
            "ffn_down.weight": (d, self.neurons),
        }


@dataclass(slots=True)
class _Inputs:
    ids: Tensor
    before: Tensor  # the hidden states at p - 1
    truth: Tensor  # ... and at p
    weight: Tensor  # of each position


class HeadTrainer:
    """Weights, moments and graphs on one device."""

    def __init__(
        self, shape: Shape, weights: Mapping[str, Array], embeddings: Array, device: str, threads: int, feature: float
    ) -> None:
        """`embeddings`: (vocabulary, width), the input and the output matrix. `feature`: weight of the squared
        difference of the hidden states in the loss, beside the cross entropy.
        """
        self.shape, s = shape, shape
        self._ggml = g = Ggml(device, threads)
        self._step = 0
        self._names = list(shape.parameters())
        self._params = {name: g.tensor(F32, *reversed(size), param=True) for name, size in shape.parameters().items()}
        moments = {name: [g.tensor(F32, *reversed(size)) for _ in "mv"] for name, size in shape.parameters().items()}
        self._settings = g.tensor(F32, 7)
        self._rows, self._columns = g.tensor(F16, s.width, s.vocab), g.tensor(F16, s.vocab, s.width)
        self._in = _Inputs(
            g.tensor(I32, s.tokens),
            g.tensor(F32, s.width, s.tokens),
            g.tensor(F32, s.width, s.tokens),
            g.tensor(F32, 1, s.tokens),
        )
        self._positions, self._mask = g.tensor(I32, s.tokens), g.tensor(F32, s.length, s.length)
        self._gradient = g.tensor(F32, s.width, s.tokens)
        self._state = g.tensor(F32, s.width, s.tokens)

        state = self._block()
        ours, theirs = (g.call("mul_mat", self._rows, h) for h in (state, self._in.truth))
        difference = g.call("sub", g.call("soft_max", ours), g.call("soft_max", theirs))
        gradient = g.call("mul_mat", self._columns, difference)
        apart = g.call("sub", state, self._in.truth)
        gradient = g.call("add", gradient, g.call("scale", apart, feature))
        gradient = g.call("scale", g.call("mul", gradient, self._in.weight), 1 / s.tokens)
        self._choices = [g.call("argmax", logits) for logits in (ours, theirs)]
        self._forward = g.graph(
            [g.call("cpy", gradient, self._gradient), g.call("cpy", state, self._state), *self._choices]
        )
        loss = g.call("sum", g.call("mul", self._block(), self._gradient))
        self._backward = g.training_graph(
            loss, [(self._params[n], moments[n][0], moments[n][1]) for n in self._names], self._settings
        )
        g.allocate()
        for name, value in weights.items():
            g.set(self._params[name], value.astype(np.float32))
        g.set(self._rows, embeddings.astype(np.float16))
        g.set(self._columns, embeddings.T.astype(np.float16))
        g.set(self._positions, np.tile(np.arange(s.length, dtype=np.int32), s.texts))
        g.set(self._mask, np.triu(np.full((s.length, s.length), -np.inf, np.float32), 1))
        g.reset(self._backward)
        self._runners = g.runner(self._forward), g.runner(self._backward)

    def _normed(self, x: Tensor, name: str) -> Tensor:
        g = self._ggml
        return g.call("mul", g.call("rms_norm", x, self.shape.epsilon), self._params[name])

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return self._ggml.call("mul_mat", self._params[name], x)

    def _block(self) -> Tensor:
        """The hidden states behind the block, [width, tokens]."""
        g = self._ggml
        tokens = g.call("get_rows", self._rows, self._in.ids)
        x = self._linear(TOKEN, self._normed(tokens, "nextn.enorm.weight"))
        x = g.call("add", x, self._linear(STATE, self._normed(self._in.before, "nextn.hnorm.weight")))
        x = g.call("add", x, self._attention(self._normed(x, "attn_norm.weight")))
        y = self._normed(x, "ffn_norm.weight")
        y = g.call("mul", g.call("silu", self._linear("ffn_gate.weight", y)), self._linear("ffn_up.weight", y))
        x = g.call("add", x, self._linear("ffn_down.weight", y))
        return self._normed(x, "nextn.shared_head_norm.weight")

    def _attention(self, x: Tensor) -> Tensor:
        """Causal, within each text. Heads of all texts lie in one dimension, so that they share their key heads."""
        g, s = self._ggml, self.shape
        size = s.width // s.heads

        def heads(name: str, n: int, *order: int) -> Tensor:
            y = g.call("reshape_3d", self._linear(name, x), size, n, s.tokens)
            if name != "attn_v.weight":
                y = g.call("rope_ext", y, self._positions, None, size, NEOX, 0, s.rope_base, 1.0, 0.0, 1.0, 0.0, 0.0)
            y = g.call("cont", g.call("permute", g.call("reshape_4d", y, size, n, s.length, s.texts), *order))
            rows = (s.length, size) if name == "attn_v.weight" else (size, s.length)
            return g.call("reshape_3d", y, *rows, n * s.texts)

        q = heads("attn_q.weight", s.heads, 0, 2, 1, 3)
        k = heads("attn_k.weight", s.kv_heads, 0, 2, 1, 3)
        v = heads("attn_v.weight", s.kv_heads, 1, 2, 0, 3)
        weights = g.call("soft_max_ext", g.call("mul_mat", k, q), self._mask, size**-0.5, 0.0)
        y = g.call("reshape_4d", g.call("mul_mat", v, weights), size, s.length, s.heads, s.texts)
        y = g.call("reshape_2d", g.call("cont", g.call("permute", y, 0, 2, 1, 3)), s.width, s.tokens)
        return self._linear("attn_output.weight", y)

    def forward(self, ids: Array, before: Array, truth: Array, weight: Array | None = None) -> float:
        """How often the block's likeliest token is the model's, where the weight is 1.

        ids: (tokens,) int32; before, truth: (tokens, width), the model's states one position earlier, and there;
        weight: (tokens,), of each position in the loss (default: 1).
        """
        g, s = self._ggml, self.shape
        weight = np.ones(s.tokens, np.float32) if weight is None else weight
        g.set(self._in.ids, ids.astype(np.int32))
        g.set(self._in.before, before.astype(np.float32))
        g.set(self._in.truth, truth.astype(np.float32))
        g.set(self._in.weight, weight.astype(np.float32))
        g.run(self._runners[0], self._forward)
        ours, theirs = (g.get(t, np.int32, s.tokens)[weight >= 1] for t in self._choices)
        return float((ours == theirs).mean()) if len(ours) else 0.0

    def states(self) -> Array:
        """The block's hidden states of the last `forward`, (tokens, width)."""
        return self._ggml.get(self._state, np.float32, self.shape.tokens, self.shape.width)

    def step(self, rate: float, decay: float = 0.01) -> None:
        """One step of AdamW by the gradient that `forward` left."""
        self._step += 1
        first, second = 0.9, 0.98
        settings = [rate, first, second, 1e-8, decay, 1 / (1 - first**self._step), 1 / (1 - second**self._step)]
        self._ggml.set(self._settings, np.array(settings, np.float32))
        self._ggml.run(self._runners[1], self._backward)

    def weights(self) -> dict[str, Array]:
        sizes = self.shape.parameters()
        return {name: self._ggml.get(self._params[name], np.float32, *sizes[name]) for name in self._names}

    def close(self) -> None:
        self._ggml.close()
