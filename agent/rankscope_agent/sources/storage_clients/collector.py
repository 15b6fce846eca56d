"""The node's clients of Lustre and CephFS, from the counters of their kernel modules in debugfs.

No file of a mount is opened, and no server is queried: a file system that hangs delays nothing
here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from rankscope_agent.contract.metrics import storage_clients as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.storage_clients import ceph, lustre
from rankscope_agent.sources.storage_clients.totals import ClientTotals, merged

MAX_MOUNTS, MAX_FILESYSTEMS = 256, 16
"""Mounts that are read, and file systems that are reported, the first by name: nodes have a few."""

MAX_BYTES = 64 << 10
"""Bytes read of one file: a Lustre client of 2.15 has 5 KiB."""


class Client(NamedTuple):
    """One kind of client: where its mounts are in debugfs, and how its files are read.

    Args:
        kind: the label `type`.
        directory: contains a directory for each mount.
        files: in each of these; missing ones are skipped.
        filesystem: returns the name of the file system from that of a mount's directory.
        parse: reads the files, concatenated.
    """

    kind: str
    directory: str
    files: Sequence[str]
    filesystem: Callable[[str], str | None]
    parse: Callable[[str], ClientTotals]


CLIENTS: Sequence[Client] = (
    Client("lustre", "lustre/llite", ("stats",), lustre.filesystem, lustre.parse_stats),
    Client(
        "ceph",
        "ceph",
        ("metrics", "metrics/latency", "metrics/size"),
        ceph.filesystem,
        ceph.parse_metrics,
    ),
)


def create(config: Config) -> StorageClientsCollector:
    """Create the collector of the node's clients."""
    return StorageClientsCollector(config.debugfs)


class StorageClientsCollector:
    """Reads the counters of clients.

    Args:
        debugfs: where it is mounted; None if it is not to be read.
    """

    def __init__(self, debugfs: Path | None) -> None:
        self._debugfs = debugfs

    def collect(self) -> Iterator[Sample]:
        """Yield the totals of each file system.

        Raises:
            NoData: debugfs is not configured, or contains no client.
            PermissionError: it may not be read.
        """
        if self._debugfs is None:
            raise NoData("debugfs is not read; set its path with --path.debugfs")
        found = False
        for client in CLIENTS:
            for name, totals in _read(self._debugfs / client.directory, client).items():
                found = True
                yield from _samples((client.kind, name), totals)
        if not found:
            raise NoData(f"no client of Lustre or CephFS in {self._debugfs}")


def _read(directory: Path, client: Client) -> dict[str, ClientTotals]:
    """Return the totals by file system; empty if there is no such client."""
    try:
        mounts = sorted(islice(directory.iterdir(), MAX_MOUNTS))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    several: dict[str, list[ClientTotals]] = defaultdict(list)
    for mount in mounts:
        name = client.filesystem(mount.name)
        if name is not None:
            several[name].append(client.parse("\n".join(_texts(mount, client.files))))
    return {name: merged(several[name]) for name in sorted(several)[:MAX_FILESYSTEMS]}


def _texts(mount: Path, files: Sequence[str]) -> Iterator[str]:
    """Yield the contents of the files; mounts come and go, and kernels have different files."""
    for name in files:
        with (
            suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError),
            (mount / name).open("rb") as file,
        ):
            yield file.read(MAX_BYTES).decode(errors="replace")


def _samples(labels: tuple[str, str], totals: ClientTotals) -> Iterator[Sample]:
    for kind, count in totals.operations.items():
        yield Sample(metrics.OPERATIONS, (*labels, kind), count)
    for kind, seconds in totals.seconds.items():
        yield Sample(metrics.SECONDS, (*labels, kind), seconds)
    for direction, count in totals.moved.items():
        yield Sample(metrics.BYTES, (*labels, direction), count)
