"""The demo model's trained NextN head, as package data where it has been trained. train_head.py is the recipe.

A file of quantized rows: Q8_0 for matrices, F32 for norms and the router, under the names that the tensors have in a
block of the source model (query and key rows in its order, not in NEOX order). The feed-forward matrices have the
shared expert's neurons, then those of each distinct routed one.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

DATA = "head.npz"
ROUTER, ROUTER_BIAS = "ffn_gate_inp.weight", "exp_probs_b.bias"
_ABOUT = "about"  # JSON: how it was trained, and what it reached


@dataclass(frozen=True, slots=True)
class HeadTensor:
    """Rows as a GGUF holds them; `data` is bytes for quantized types."""

    name: str
    data: NDArray[Any]
    tensor_type: GGMLQuantizationType


def head_bytes() -> bytes:
    """The file; empty where no head has been trained."""
    path = files(__package__) / DATA
    return path.read_bytes() if path.is_file() else b""


def read_head(raw: bytes) -> dict[str, HeadTensor]:
    """Tensors by name; none for no bytes."""
    if not raw:
        return {}
    found = {}
    with np.load(io.BytesIO(raw), allow_pickle=False) as data:
        for name in data.files:
            if name != _ABOUT:
                values = data[name]
                kind = GGMLQuantizationType.F32 if values.dtype == np.float32 else GGMLQuantizationType.Q8_0
                found[name] = HeadTensor(name, values, kind)
    return found


def about_head(raw: bytes) -> dict[str, Any]:
    """How the head was trained."""
    with np.load(io.BytesIO(raw), allow_pickle=False) as data:
        about: dict[str, Any] = json.loads(str(data[_ABOUT]))
    return about


def as_shipped(weights: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """What is left of the weights when they are read from the file."""
    return {
        name: values if (kind := _kind(name, values)) is None else dequantize(quantize(values, kind), kind)
        for name, values in weights.items()
    }


def write_head(path: Path, weights: Mapping[str, NDArray[np.float32]], about: Mapping[str, Any]) -> None:
    """Quantizes the matrices among `weights` and writes the file."""
    stored: dict[str, Any] = {_ABOUT: np.array(json.dumps(about))}
    stored |= {name: _stored(name, values) for name, values in weights.items()}
    with path.open("wb") as stream:
        np.savez_compressed(stream, **stored)


def _stored(name: str, values: NDArray[np.float32]) -> NDArray[Any]:
    kind = _kind(name, values)
    return values if kind is None else quantize(values, kind)


def _kind(name: str, values: NDArray[np.float32]) -> GGMLQuantizationType | None:
    """None: as they are. A router decides by small differences, and is small."""
    return None if values.ndim == 1 or name == ROUTER else GGMLQuantizationType.Q8_0
