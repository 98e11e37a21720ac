"""The fitted routers, as package data. routers.py is the recipe."""

from __future__ import annotations

import io
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

DATA = "routers.npz"


def routers_bytes() -> bytes:
    """The file with the fitted routers."""
    return (files(__package__) / DATA).read_bytes()


def load_routers() -> NDArray[np.float16]:
    """(layers, experts, embedding length)."""
    with np.load(io.BytesIO(routers_bytes()), allow_pickle=False) as data:
        routers: NDArray[np.float16] = data["routers"]
    return routers
