"""The GPUs that this process may use, by the driver's files, reading which may hang."""

from __future__ import annotations

from contextlib import suppress

from rankscope_agent.sources.gpus.nvml import Nvml, NvmlError
from rankscope_agent.sources.gpus.worker import Hung, Worker


class GivenGpus:
    """Reads their addresses in a thread of its own, so that no GPU's values wait for them.

    Args:
        nvml: the library.
    """

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._worker: Worker[None] = Worker("gpus-given")
        self.addresses: frozenset[str] = frozenset()
        """PCI addresses; empty until they are known, also if they are later than `wait` waits."""

    def ask(self) -> None:
        """Forget the addresses and read them anew, unless an earlier call hangs."""
        self.addresses = frozenset()
        self._worker.ask(self._read)

    def wait(self, timeout_seconds: float) -> None:
        """Wait until the addresses are known; without them no GPU is missing."""
        with suppress(Hung, NvmlError):
            self._worker.answer(timeout_seconds)

    def _read(self) -> None:
        self.addresses = self._nvml.given()
