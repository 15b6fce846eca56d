"""Counters of RDMA ports: traffic, errors, retransmissions, congestion, link changes, GPUDirect.

They are read from /sys/class/infiniband, which requires no privilege and shows the node's ports in
a pod too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rankscope_agent.contract.model import Sample
from rankscope_agent.settings.config import Config
from rankscope_agent.settings.file_descriptors import share
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.kernel_files import read_text
from rankscope_agent.sources.rdma import gpudirect
from rankscope_agent.sources.rdma.tree import RdmaTree

RESCAN_SECONDS = 10.0
"""Time between two scans for devices and files: a hot-plugged adapter is seen by the next scrape,
and listing 16 ports takes some 5 ms."""


def create(config: Config) -> RdmaCollector:
    """Create the collector of the node's RDMA ports."""
    tree = RdmaTree(config.sysfs, share("rdma"), everything=config.once)
    release = read_text(config.procfs / "sys" / "kernel" / "osrelease")
    return RdmaCollector(tree, config.sysfs, time.monotonic, release)


class RdmaCollector:
    """Reads the node's RDMA ports.

    Args:
        tree: the ports.
        sysfs: the node's sysfs, for the message if there are no ports.
        clock: returns monotonic seconds.
        kernel_release: of the node, as uname gives it.
    """

    def __init__(
        self, tree: RdmaTree, sysfs: Path, clock: Callable[[], float], kernel_release: str = ""
    ) -> None:
        self._tree = tree
        self._sysfs = sysfs
        self._clock = clock
        self._kernel_release = kernel_release
        self._scanned = float("-inf")
        self._gpudirect: Sequence[Sample] = ()

    def collect(self) -> Sequence[Sample]:
        """Return the series of the ports.

        Raises:
            NoData: the node shows no RDMA device.
            PermissionError: it may have some, but denies access.
        """
        now = self._clock()
        if now - self._scanned >= RESCAN_SECONDS or self._tree.changed:
            self._tree.refresh()
            self._gpudirect = tuple(gpudirect.samples(self._sysfs, self._kernel_release))
            self._scanned = now
        if not self._tree.found:
            raise NoData(self._absence())
        return [*self._gpudirect, *self._tree.samples()]

    def _absence(self) -> str:
        """Return which part of the path to devices is missing.

        Raises:
            PermissionError: it exists but may not be listed.
        """
        classes = self._sysfs / "class"
        try:
            has_devices = classes / "infiniband" in classes.iterdir()
        except (FileNotFoundError, NotADirectoryError):
            return f"{self._sysfs} is not a sysfs; set the path of the node's with --path.sysfs"
        if has_devices:
            next((classes / "infiniband").iterdir(), None)
        return f"no RDMA device in {classes}/infiniband"
