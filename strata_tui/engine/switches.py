"""The switches of one open model: applied to the tier between rounds, and read back from it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .modes import Drafting, Modes, ModesState, Residency, SwitchState
from .speculate import Speculation
from .telemetry import ram_for_core

if TYPE_CHECKING:
    from . import _core

_NONE = "not applicable"


class Switches:
    """`apply` and `state` belong to the thread that decodes; `live` may be asked from any."""

    def __init__(self, core: Any, tier: _core.Tier, speculation: Speculation) -> None:
        self._core, self._tier, self._speculation = core, tier, speculation
        self._drafting = Drafting.AUTO
        self._wanted = self._policy = Residency.LRU  # last asked for; last accepted by the tier
        self._pool: Modes | None = None  # with which the stage pool was built last

    def apply_pool(self, modes: Modes) -> None:
        """Builds the stage pool anew. Raises the extension's Error; the pool is then as it was."""
        core = self._core
        pin, stager = getattr(core, f"PIN_{modes.pinning.name}"), getattr(core, f"STAGER_{modes.stager.name}")
        self._tier.set_modes(pin, stager, ram_for_core())
        self._pool = modes

    def apply_residency(self, wanted: Residency) -> None:
        """Raises the extension's Error; the policy is then as it was."""
        self._wanted = wanted
        if self._tier.n_experts:
            self._tier.set_policy(getattr(self._core, f"POLICY_{wanted.name}"))
        self._policy = wanted

    def apply_drafting(self, wanted: Drafting) -> None:
        self._drafting = wanted
        self._speculation.apply(wanted)

    def apply(self, modes: Modes) -> None:
        """Changes what differs; the stage pool is left alone when only the residency or the drafts change."""
        pool = self._pool
        others = modes.residency is not self._wanted or modes.draft is not self._drafting
        if modes.draft is not self._drafting:
            self.apply_drafting(modes.draft)
        if pool is None or not others or replace(pool, residency=modes.residency, draft=modes.draft) != modes:
            self.apply_pool(modes)
        if modes.residency is not self._policy:
            self.apply_residency(modes.residency)

    def state(self) -> ModesState:
        raw = self._tier.modes()
        return ModesState(
            _switch(raw, "pinning"),
            _switch(raw, "stager"),
            int(str(raw["generation"])),
            self.residency(),
            self._speculation.state(),
        )

    def live(self, modes: ModesState) -> ModesState:
        """`modes` with the states that change by themselves as they are now, where no change is pending."""
        raw = self._tier.modes()
        return replace(
            modes,
            stager=_fresh(modes.stager, _switch(raw, "stager")),
            residency=modes.residency and _fresh(modes.residency, self.residency()),
            draft=modes.draft and _fresh(modes.draft, self._speculation.state()),
        )

    def residency(self) -> SwitchState:
        """The policy in force; the reason carries what the adaptive tier has done so far."""
        policy = self._policy
        if not self._tier.n_experts:
            return SwitchState(self._wanted.value, _NONE, f"{_NONE}: no experts")
        if policy is Residency.LRU:
            reason = "the last used stay"
        elif policy is Residency.FROZEN:
            reason = "homes stay, guests change"
        else:
            done = self._tier.swaps()
            mean = f", {done['ns'] / done['rounds'] / 1e6:.2f} ms a round" if done["rounds"] else ""
            reason = f"{done['swaps']} swaps{mean}"
        return SwitchState(self._wanted.value, policy.value, f"{policy.value}: {reason}")


def _switch(raw: dict[str, object], name: str) -> SwitchState:
    return SwitchState(str(raw[f"{name}_wanted"]), str(raw[name]), str(raw[f"{name}_reason"]))


def _fresh(shown: SwitchState, now: SwitchState) -> SwitchState:
    return now if not shown.pending and shown.wanted == now.wanted else shown
