"""strata-tui: chat in the terminal with mixture-of-experts models bigger than the graphics card."""

__version__ = "0.1.0"
