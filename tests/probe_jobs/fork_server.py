"""A fork server, as benchmarks have one, whose ranks a nursery forks: it has imported torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.running_jobs.launch import ForkServer

from probe_jobs.nurseries import Nurseries, Nursery


class NurseryServer(ForkServer):
    """Forks ranks without cgroups and network namespaces of their own.

    Args:
        nurseries: those of the test process, which close themselves.
        probed: False if ranks have no probe until `load_probe`.
    """

    def __init__(self, nurseries: Nurseries, *, probed: bool = True) -> None:
        self._nurseries = nurseries
        self._nursery = nurseries.probed if probed else nurseries.bare
        self._started: dict[int, Nursery] = {}

    def __exit__(self, *_: object) -> None:
        return

    def load_probe(self) -> None:
        """Have all ranks that are forked from now on by the nursery with the probe."""
        self._nursery = self._nurseries.probed

    def start(
        self,
        script: Path,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        output: Path,
        *,
        processes: str = "",
        network: str = "",
    ) -> int:
        """Start a script as one rank; return its process id."""
        if processes or network:
            raise ValueError("ranks of a nursery have no cgroup and no network of their own")
        forked = self._nursery.start([str(script), *arguments], environment, output)
        self._started[forked.pid] = self._nursery
        return forked.pid

    def exit_code(self, pid: int) -> int | None:
        """Return how a rank ended, None while it runs; negative: the signal that ended it."""
        return self._started[pid].exit_codes(pid)[0]
