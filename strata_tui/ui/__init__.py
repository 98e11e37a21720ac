"""The terminal app. Everything that imports Textual lives here (and in render, which builds Content)."""

import os

# Textual draws at ticks of this rate, and misses up to two when a frame takes longer than one: at its usual 60 a key
# that comes while a reply is drawn is echoed 33 ms later, at this rate 8 ms. Ticks are only used when something
# changed, so it costs nothing otherwise. Read when Textual is imported, which is not done here: --plain does without.
os.environ.setdefault("TEXTUAL_FPS", "240")
