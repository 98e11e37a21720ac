"""Fills, before the first round, the slots (the hottest experts of the usage profile) and then the mirror."""

from __future__ import annotations

import time
from logging import Logger
from pathlib import Path
from typing import TYPE_CHECKING

from .gguf_info import GgufInfo
from .loading import Emit, LoadControl, Throttle
from .plan import gib
from .profile import UsageProfile, model_key

if TYPE_CHECKING:
    from . import _core


def open_profile(folder: Path | None, info: GgufInfo, n_experts: int, log: Logger) -> UsageProfile | None:
    """The model's usage profile; None where there is nothing to keep one of, or no `folder` to keep it in."""
    if folder is None or not n_experts:
        return None
    try:
        return UsageProfile(folder, model_key(info), info.name, n_experts, log)
    except OSError as error:
        log.warning("profile: not used, the model's header cannot be read again: %s", error)
        return None


def fill_slots(tier: _core.Tier, profile: UsageProfile | None, emit: Emit, control: LoadControl, log: Logger) -> None:
    """By the profile, else evenly over the layers. Raises LoadCancelled, or the extension's Error."""
    report = Throttle("filling slots", emit, "slots")

    def progress(done: int, total: int) -> bool:
        report(done, total)
        return not control.cancelled

    usage = profile.read() if profile is not None else None
    begun = time.monotonic()
    with control.stopping(lambda: tier.cancel(True)):
        filled = tier.prefill(usage, progress)
    control.check()
    how = "evenly" if usage is None else "by the profile"
    log.info("slots: %d filled %s in %.2f s", filled, how, time.monotonic() - begun)


def fill_mirror(tier: _core.Tier, limit: int, emit: Emit, control: LoadControl, log: Logger) -> None:
    """Raises LoadCancelled, or the extension's Error."""
    report = Throttle("filling the mirror", emit)

    def progress(done: int, total: int) -> bool:
        report(done, total)
        return not control.cancelled

    filled = tier.fill_mirror(limit, progress)
    control.check()
    log.info("mirror: %s of at most %s", gib(filled), gib(limit))
