"""The demo model: a small chat model with real expert routing, made on this machine on first use."""

from .build import demo_model_path, ensure_demo_model

__all__ = ["demo_model_path", "ensure_demo_model"]
