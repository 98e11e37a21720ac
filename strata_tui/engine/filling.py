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


class Mirror:
    """Fills the mirror beside replies, so that the first token does not wait for it: while nothing runs in steps, and
    between rounds as far as that costs a small share of the time. On the thread that decodes."""

    STEP = 0.05  # seconds
    SHARE = 0.1  # of a reply's time

    def __init__(self, tier: _core.Tier, limit: int, log: Logger) -> None:
        """`limit` in bytes; 0: there is none."""
        self._tier, self._limit, self._log = tier, limit, log
        self._resting = time.monotonic()  # since then no step was made
        self._cost = 0.0  # seconds of the last step
        self._bytes = 0
        self.filling = limit > 0

    def ask_again(self) -> None:
        """A driver that refused memory is asked again, because a person asks."""
        self.filling = self._bytes < self._limit

    def between_rounds(self) -> None:
        """A step, when there was time enough since the last. Raises the extension's Error."""
        if self.filling and self._cost <= self.SHARE * (time.monotonic() - self._resting):
            self.step()

    def step(self) -> None:
        """Fills for about STEP seconds; pinning a new piece takes longer. Raises the extension's Error."""
        begun = time.monotonic()
        self._bytes = self._tier.fill_mirror(self._limit, lambda _done, _total: time.monotonic() - begun < self.STEP)
        self._resting = time.monotonic()
        self._cost = self._resting - begun
        if self._cost < self.STEP:  # it ended by itself: all is there, or the driver refused more
            self.filling = False
            self._log.info("mirror: %s of at most %s", gib(self._bytes), gib(self._limit))
