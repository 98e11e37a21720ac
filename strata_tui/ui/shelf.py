"""The models that were found, with what each would need. Everything here may take a while: call it from a thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.options import EngineOptions
from ..errors import UserError

if TYPE_CHECKING:  # at run time when it is asked for: reading GGUF files takes numpy, and the first frame waits
    from ..catalog.places import Place
    from ..catalog.scan import Found
    from ..engine.plan import Machine, Plan

_STALE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Shelved:
    """A found file with its plan, or why there is none."""

    found: Found
    plan: Plan | None = None
    problem: str = ""

    @property
    def usable(self) -> bool:
        """Whether it is a model that can be tried; one that does not fit is."""
        return self.found.info is not None


class Shelf:
    """`held`: how many bytes the open model would give back, asked for before each scan."""

    def __init__(
        self, own: tuple[Path, ...], model: Path | None, options: EngineOptions, held: Callable[[], int]
    ) -> None:
        self._own = own
        self._model = model
        self._options = options
        self._held = held
        self._last: tuple[float, list[Shelved]] | None = None

    def places(self) -> list[Place]:
        """The folders that are looked in, in that order; they need not exist."""
        from ..catalog.places import places

        return places(self._own, self._model)

    def look(self, stop: Callable[[], bool]) -> Iterator[Shelved]:
        """Finds the models, one by one."""
        from ..catalog.estimate import machine
        from ..catalog.scan import scan

        there: Machine | None = None
        fault = ""
        try:
            there = machine(self._options, self._held())
        except UserError as error:
            fault = str(error)
        found: list[Shelved] = []
        for one in scan(self.places(), stop):
            shelved = self._planned(one, there, fault)
            found.append(shelved)
            yield shelved
        if not stop():
            self._last = (time.monotonic(), found)

    def all(self) -> list[Shelved]:
        """Those found lately, else looked for now."""
        if self._last is None or time.monotonic() - self._last[0] > _STALE_SECONDS:
            return list(self.look(lambda: False))
        return self._last[1]

    def forget(self) -> None:
        """There are others now."""
        self._last = None

    def names(self) -> list[str]:
        """What the models are called."""
        return [one.found.name for one in self.all() if one.usable]

    def path_of(self, text: str) -> Path:
        """The file of a path or of a model's name or a part of it. Raises UserError when it is not one model."""
        path = Path(text).expanduser()
        if path.exists() or text.endswith(".gguf"):
            return path
        from ..catalog.names import choose

        found = choose(text, [one.found for one in self.all()])
        if found is not None:
            return found.path
        raise UserError(f"No model {text} was found: /model lists those there are, and takes a file's path.")

    def _planned(self, found: Found, there: Machine | None, fault: str) -> Shelved:
        if found.info is None:
            return Shelved(found, None, found.problem)
        if there is None:
            return Shelved(found, None, fault)
        from ..catalog.estimate import estimate

        try:
            return Shelved(found, estimate(found.info, there, self._options))
        except UserError as error:
            return Shelved(found, None, str(error))


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file."""
    return os.path.realpath(one) == os.path.realpath(other)
