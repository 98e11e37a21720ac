"""A NextN block that is trained: one transformer layer that says a model's next hidden state from the last one.

At position p it reads the token x[p] and the model's final hidden state at p - 1, attends to the positions
before, and gives what the model's final hidden state at p would be; the model's own output matrix makes logits
of that. The loss is the cross entropy of the block's distribution against the model's. Its gradient at the
hidden state is W' (softmax(W h) - softmax(W h_model)), which is computed first, so that no gradient passes
through the large matrix W. For the same reason the experts' weights are computed first: the router is given, not
trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .ggml import F16, F32, I32, NEOX, Array, Ggml, Tensor

TOKEN, STATE = "token_proj", "state_proj"


@dataclass(frozen=True, slots=True)
class Experts:
    """`routed` of them, `used` at a token; expert i is number i % distinct, `neurons` wide. Those in front of them in
    the feed-forward matrices, `shared`, are always used.
    """

    routed: int
    used: int
    distinct: int
    neurons: int
    shared: int

    @property
    def rows(self) -> int:
        """Neurons of the feed-forward matrices: the shared ones, then those of each distinct expert."""
        return self.shared + self.distinct * self.neurons

    @property
    def parts(self) -> int:
        return self.rows // self.neurons


@dataclass(frozen=True, slots=True)
class Shape:
    """Of the model, and of a training batch: `texts` pieces of `length` tokens."""

    width: int
    heads: int
    kv_heads: int
    experts: Experts
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
        d, kv, rows = self.width, self.width // self.heads * self.kv_heads, self.experts.rows
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
            "ffn_gate.weight": (rows, d),
            "ffn_up.weight": (rows, d),
            "ffn_down.weight": (d, rows),
        }


@dataclass(slots=True)
class _Inputs:
    ids: Tensor
    states: Tensor  # the model's, from the position before each text's first one on
    weight: Tensor  # of each position
    before: Tensor  # the states at p - 1
    gates: Tensor  # the experts' weights


class HeadTrainer:
    """Weights, moments and graphs on one device."""

    def __init__(
        self,
        shape: Shape,
        weights: Mapping[str, Array],
        embeddings: Array,
        device: str,
        threads: int,
        *,
        feature: float = 0.0,
        warmth: float = 1.0,
    ) -> None:
        """`embeddings`: (vocabulary, width), the input and the output matrix. `feature`: weight of the squared
        difference of the hidden states in the loss, beside the cross entropy. `warmth`: the temperature at which
        the model's distribution is taken.
        """
        self.shape, s, e = shape, shape, shape.experts
        self._ggml = g = Ggml(device, threads, tensors=320, nodes=4096)
        self._step, self._feature, self._warmth = 0, feature, warmth
        self._names = list(shape.parameters())
        self._params = {name: g.tensor(F32, *reversed(size), param=True) for name, size in shape.parameters().items()}
        moments = {name: [g.tensor(F32, *reversed(size)) for _ in "mv"] for name, size in shape.parameters().items()}
        self._settings = g.tensor(F32, 7)
        self._rows, self._columns = g.tensor(F16, s.width, s.vocab), g.tensor(F16, s.vocab, s.width)
        self._in = _Inputs(
            ids=g.tensor(I32, s.tokens),
            states=g.tensor(F16, s.width, s.length + 1, s.texts),
            weight=g.tensor(F32, 1, s.tokens),
            before=g.tensor(F32, s.width, s.tokens),
            gates=g.tensor(F32, 1, e.parts, s.tokens),
        )
        self._positions, self._mask = g.tensor(I32, s.tokens), g.tensor(F32, s.length, s.length)
        self._a_text = g.tensor(F32, s.width, s.length)
        self._router, self._bias = g.tensor(F32, s.width, e.routed), g.tensor(F32, e.routed)
        self._shares, self._always = g.tensor(F32, e.routed, e.parts), g.tensor(F32, e.parts)
        self._tiny = g.tensor(F32, 1)
        self._gradient, self._state, self._read = (g.tensor(F32, s.width, s.tokens) for _ in range(3))

        true = g.call("cpy", self._of_states(0), self._in.before)
        self._forwards = [self._forward_graph(before) for before in (true, self._one_later())]
        loss = g.call("sum", g.call("mul", self._block(self._in.before, self._in.gates), self._gradient))
        self._backward = g.training_graph(
            loss, [(self._params[n], moments[n][0], moments[n][1]) for n in self._names], self._settings
        )
        g.allocate()
        self.load(weights)
        g.set(self._rows, embeddings.astype(np.float16))
        g.set(self._columns, embeddings.T.astype(np.float16))
        g.set(self._positions, np.tile(np.arange(s.length, dtype=np.int32), s.texts))
        g.set(self._mask, np.triu(np.full((s.length, s.length), -np.inf, np.float32), 1))
        part_of = e.parts - e.distinct + np.arange(e.routed) % e.distinct
        g.set(self._shares, (np.arange(e.parts)[:, None] == part_of).astype(np.float32))
        g.set(self._always, (np.arange(e.parts) < e.parts - e.distinct).astype(np.float32))
        g.set(self._tiny, np.full(1, 1e-9, np.float32))
        self.route(np.zeros((e.routed, s.width), np.float32), np.zeros(e.routed, np.float32))
        g.reset(self._backward)
        self._runners = [g.runner(graph) for graph, _ in self._forwards] + [g.runner(self._backward)]

    def _of_states(self, first: int) -> Tensor:
        """The model's states from each text's first position on, or (1) from the second on."""
        s, size = self.shape, 2
        row = s.width * size
        return self._ggml.call(
            "view_3d", self._in.states, s.width, s.length, s.texts, row, row * (s.length + 1), first * row
        )

    def _one_later(self) -> Tensor:
        """The block's own states instead of the model's, one position later; a text's first one stays as it is."""
        g, s = self._ggml, self.shape
        row = s.width * 4
        first = g.call("view_3d", self._in.before, s.width, 1, s.texts, row, row * s.length, 0)
        own = g.call("view_3d", self._state, s.width, s.length - 1, s.texts, row, row * s.length, 0)
        return g.call("cpy", g.call("concat", first, own, 1), self._in.before)

    def _forward_graph(self, before: Tensor) -> tuple[int, list[Tensor]]:
        """The graph, and its tensors with our choices and the model's."""
        g, s = self._ggml, self.shape
        state = self._block(before, None)
        truth = g.call("reshape_2d", g.call("cast", self._of_states(1), F32), s.width, s.tokens)
        ours, theirs = (g.call("mul_mat", self._rows, h) for h in (state, truth))
        wanted = g.call("soft_max_ext", theirs, None, 1 / self._warmth, 0.0)
        difference = g.call("sub", g.call("soft_max", ours), wanted)
        gradient = g.call("mul_mat", self._columns, difference)
        if self._feature:
            gradient = g.call("add", gradient, g.call("scale", g.call("sub", state, truth), self._feature))
        gradient = g.call("scale", g.call("mul", gradient, self._in.weight), 1 / s.tokens)
        choices = [g.call("argmax", logits) for logits in (ours, theirs)]
        kept = [g.call("cpy", gradient, self._gradient), g.call("cpy", state, self._state)]
        return g.graph([*kept, *choices]), choices

    def load(self, weights: Mapping[str, Array]) -> None:
        """Parameters by name; others stay as they are."""
        for name, value in weights.items():
            self._ggml.set(self._params[name], value.astype(np.float32))

    def route(self, router: Array, bias: Array) -> None:
        """(routed, width), and what is added to each expert's probability where the used ones are chosen."""
        self._ggml.set(self._router, router.astype(np.float32))
        self._ggml.set(self._bias, bias.astype(np.float32))

    def _normed(self, x: Tensor, name: str) -> Tensor:
        """The weights are repeated for the positions of a text first: their gradient is then summed in two steps, each
        of which has enough to do at once.
        """
        g, s = self._ggml, self.shape
        repeated = g.call("repeat", self._params[name], self._a_text)
        y = g.call("reshape_3d", g.call("rms_norm", x, s.epsilon), s.width, s.length, s.texts)
        return g.call("reshape_2d", g.call("mul", y, repeated), s.width, s.tokens)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return self._ggml.call("mul_mat", self._params[name], x)

    def _block(self, before: Tensor, gates: Tensor | None) -> Tensor:
        """The hidden states behind the block, [width, tokens]. `gates` None: computed, and kept for the gradients."""
        g, e, tokens = self._ggml, self.shape.experts, self.shape.tokens
        embedded = g.call("get_rows", self._rows, self._in.ids)
        x = self._linear(TOKEN, self._normed(embedded, "nextn.enorm.weight"))
        x = g.call("add", x, self._linear(STATE, self._normed(before, "nextn.hnorm.weight")))
        x = g.call("add", x, self._attention(self._normed(x, "attn_norm.weight")))
        y = self._normed(x, "ffn_norm.weight")
        if gates is None:
            gates = g.call("cpy", self._gates(g.call("cpy", y, self._read)), self._in.gates)
        y = g.call("mul", g.call("silu", self._linear("ffn_gate.weight", y)), self._linear("ffn_up.weight", y))
        y = g.call("mul", g.call("reshape_3d", y, e.neurons, e.parts, tokens), gates)
        x = g.call("add", x, self._linear("ffn_down.weight", g.call("reshape_2d", y, e.rows, tokens)))
        return self._normed(x, "nextn.shared_head_norm.weight")

    def _gates(self, y: Tensor) -> Tensor:
        """The weight of each part of the feed-forward matrices, [parts, tokens], as glm4moe has it: the sigmoids of
        the `used` experts that lead with the bias, divided by their sum.
        """
        g, s, e = self._ggml, self.shape, self.shape.experts
        p = g.call("sigmoid", g.call("mul_mat", self._router, y))
        ranked = g.call("add", p, self._bias)
        order = g.call("argsort", ranked, 1)  # descending
        last = g.call("cont", g.call("view_2d", order, 1, s.tokens, e.routed * 4, (e.used - 1) * 4))
        rows = g.call("reshape_3d", ranked, 1, e.routed, s.tokens)
        least = g.call("reshape_2d", g.call("get_rows", rows, last), 1, s.tokens)
        # step(0) is 0, and the last one used must count
        above = g.call("add", g.call("sub", ranked, least), self._tiny)
        chosen = g.call("mul", p, g.call("step", above))
        weights = g.call("div", chosen, g.call("sum_rows", chosen))
        return g.call("add", g.call("mul_mat", self._shares, weights), self._always)

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

    def forward(self, ids: Array, states: Array, weight: Array | None = None) -> float:
        """How often the block's likeliest token is the model's, where the weight is 1.

        ids: (texts, length) int32; states: (texts, length + 1, width) float16, the model's, beginning one position
        before each text; weight: (texts, length), of each position in the loss (default: 1).
        """
        g, s = self._ggml, self.shape
        weight = np.ones((s.texts, s.length), np.float32) if weight is None else weight
        self._counted = weight.reshape(-1) >= 1
        g.set(self._in.ids, ids.astype(np.int32))
        g.set(self._in.states, states.astype(np.float16, copy=False))
        g.set(self._in.weight, weight.astype(np.float32))
        return self._run(0)

    def follow(self) -> float:
        """As `forward` with the same texts, but the block reads its own last states, one position later."""
        return self._run(1)

    def _run(self, which: int) -> float:
        graph, choices = self._forwards[which]
        self._ggml.run(self._runners[which], graph)
        ours, theirs = (self._ggml.get(t, np.int32, self.shape.tokens)[self._counted] for t in choices)
        return float((ours == theirs).mean()) if len(ours) else 0.0

    def states(self) -> Array:
        """The block's hidden states of the last run, (texts, length, width)."""
        s = self.shape
        return self._ggml.get(self._state, np.float32, s.texts, s.length, s.width)

    def routed(self) -> Array:
        """What the router read in the last run, (tokens, width)."""
        return self._ggml.get(self._read, np.float32, self.shape.tokens, self.shape.width)

    def step(self, rate: float, decay: float = 0.01) -> None:
        """One step of AdamW by the gradient that `forward` left."""
        self._step += 1
        first, second = 0.9, 0.98
        settings = [rate, first, second, 1e-8, decay, 1 / (1 - first**self._step), 1 / (1 - second**self._step)]
        self._ggml.set(self._settings, np.array(settings, np.float32))
        self._ggml.run(self._runners[2], self._backward)

    def weights(self) -> dict[str, Array]:
        sizes = self.shape.parameters()
        return {name: self._ggml.get(self._params[name], np.float32, *sizes[name]) for name in self._names}

    def close(self) -> None:
        self._ggml.close()
