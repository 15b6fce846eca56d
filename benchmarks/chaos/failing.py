"""Collectors and analyzers that fail during a fault: as long as a file tells them to.

The programs that start the agent and the watch install these switches; the product contains none of
this. A collector fails as a whole, an analyzer on all jobs except the one whose verdict must not
suffer.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

How = Literal["hangs", "raises"]

LONGEST_HANG_SECONDS = 120.0
"""Seconds, even if nobody is left to switch it off."""

ANALYZED = frozenset(("timing", "layer", "report"))
"""Parts of an analysis that are about one job, by their names in
`rankscope_analyzers.isolation`."""

SPARED = "chaos-long"
"""The job whose verdict must not suffer."""


class PlantedError(Exception):
    """Raised by collectors and analyzers that are to raise."""


@dataclass(frozen=True, slots=True)
class Switch:
    """Selects what is to fail, for the processes of a chain.

    Args:
        folder: of the chain.
        process: "agent" or "watch".
    """

    folder: Path
    process: str

    @property
    def _orders(self) -> Path:
        return self.folder / f"failing-{self.process}"

    @property
    def _marks(self) -> Path:
        return self.folder / f"failed-{self.process}"

    @contextlib.contextmanager
    def on(self, names: Sequence[str], how: How) -> Iterator[None]:
        """Let collectors or jobs fail until the block ends."""
        written = self._orders.with_suffix(".new")
        written.write_text(json.dumps({"names": list(names), "how": how}))
        written.rename(self._orders)
        try:
            yield
        finally:
            self._orders.unlink()

    def has_failed(self) -> bool:
        """Return True if anything has failed since the last call."""
        failed = self._marks.exists()
        self._marks.unlink(missing_ok=True)
        return failed

    def fail(self, name: str) -> None:
        """Fail if this one is selected.

        Raises:
            PlantedError: it is to raise.
        """
        how = self._how(name)
        if how is None:
            return
        self._marks.touch()
        if how == "raises":
            raise PlantedError(name)
        deadline = time.monotonic() + LONGEST_HANG_SECONDS
        while self._how(name) == "hangs" and time.monotonic() < deadline:
            time.sleep(0.05)

    def _how(self, name: str) -> How | None:
        try:
            orders = json.loads(self._orders.read_text())
        except FileNotFoundError:
            return None
        return orders["how"] if name in orders["names"] else None


class _FailingCollector:
    """A collector with a switch."""

    def __init__(self, name: str, collector: Any, switch: Switch) -> None:
        self._name, self._collector, self._switch = name, collector, switch

    def collect(self) -> Iterable[Any]:
        self._switch.fail(self._name)
        yield from self._collector.collect()


def _install_in_agent(switch: Switch) -> None:
    registry: Any = importlib.import_module("rankscope_agent.collecting.registry")
    scrape = registry.scrape
    registry.scrape = lambda name, collector, last: scrape(
        name, _FailingCollector(name, collector, switch), last
    )


def _install_in_watch(switch: Switch) -> None:
    """Replace the functions that every analysis calls, before anything has imported them."""
    boundary: Any = importlib.import_module("rankscope_analyzers.isolation.boundary")
    attempt = boundary.attempt

    def failing(part: str, about: str, make: Callable[[], Any]) -> Any:
        def made() -> Any:
            if part in ANALYZED and about != SPARED:
                switch.fail(part)
            return make()

        return attempt(part, about, made)

    boundary.attempt = failing


def install(module: str) -> None:
    """Install the switches in the process of a module."""
    folder = Path(os.environ["RANKSCOPE_CHAOS_FOLDER"])
    if module == "rankscope_agent":
        _install_in_agent(Switch(folder, "agent"))
    else:
        _install_in_watch(Switch(folder, "watch"))
