"""The terminal app. Everything that imports Textual lives here (and in render, which builds Content)."""

import os

# Textual draws at ticks of this rate, and misses up to two when a frame takes longer than one: at its usual 60 a key
# that comes while a reply is drawn is echoed 33 ms later, at this rate 8 ms. Ticks are only used when something
# changed, so it costs nothing otherwise. It is read once, by this import, and not left for the programs we start.
if "TEXTUAL_FPS" not in os.environ:
    os.environ["TEXTUAL_FPS"] = "240"
    import textual.constants  # noqa: F401

    del os.environ["TEXTUAL_FPS"]
