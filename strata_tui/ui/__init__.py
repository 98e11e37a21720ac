"""The terminal app. Everything that imports Textual lives here (and in render, which builds Content)."""
