"""Measurements, one file each. A measurement checks its output and says what it ran on."""

from __future__ import annotations

from typing import Any


def add_parsers(subparsers: Any) -> None:
    """Adds every measurement's parser to the subparsers of `strata-tui bench`."""
    from . import decode, drafts, identity, make_model, prompt, speculate, stage, store, ui

    decode.add_parser(subparsers)
    drafts.add_parser(subparsers)
    identity.add_parser(subparsers)
    make_model.add_parser(subparsers)
    prompt.add_parser(subparsers)
    speculate.add_parser(subparsers)
    stage.add_parser(subparsers)
    store.add_parser(subparsers)
    ui.add_parser(subparsers)
