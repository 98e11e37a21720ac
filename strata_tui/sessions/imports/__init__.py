"""Chats from files of other programs and from our own JSON."""

from __future__ import annotations

from .reading import Import, read_file
from .taking import take_in

__all__ = ["Import", "read_file", "take_in"]
