"""How big the terminal is, and how big it has to be. Sizes are (columns, rows)."""

from __future__ import annotations

import os
from typing import Final

START_SIZE: Final = (40, 10)
"""Below this the chat does not start."""
DRAW_SIZE: Final = (60, 16)
"""Below this it runs, and says how much room it needs instead of drawing."""


def terminal_size() -> tuple[int, int] | None:
    """The size of the terminal on standard output, error or input, asked anew; None where there is none.

    None too where the terminal does not know its size (serial lines, some containers: 0 x 0).
    """
    for fd in (1, 2, 0):
        try:
            columns, rows = os.get_terminal_size(fd)
        except OSError:
            continue
        if columns > 0 and rows > 0:
            return columns, rows
    return None
