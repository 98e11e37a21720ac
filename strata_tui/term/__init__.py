"""The terminal around Textual. Nothing here imports Textual, so that it can run before and around it."""
