"""PromQL over the nodes' clients of file systems: how long they wait for one operation."""

from __future__ import annotations

from rankscope_agent.contract.metrics import host, storage_clients
from rankscope_agent.contract.model import Metric
from rankscope_dashboards.expressions.promql import by, worst

CLIENT = ("node", "type", "filesystem", "operation")

JUICEFS_SECONDS = "juicefs_fuse_ops_durations_histogram_seconds"
"""Metrics of JuiceFS itself, which a mount serves:
juicefs.com/docs/community/reference/p8s_metrics. `vol_name` is its label; that of the node is the
scrape's."""


def operation_seconds(matchers: str, window: str, fewest: int, moment: str) -> str:
    """Return the mean duration of an operation, by node, file system and kind of operation.

    Args:
        matchers: of the series, "" for all.
        window: for the mean.
        fewest: minimum number of operations within the window for a mean.
        moment: end of the window, ` @ end()` for that of a panel; "" for each point's own.
    """
    chosen = f"{{{matchers}}}" if matchers else ""
    spent, count = (
        f"sum {by(*CLIENT)} (increase({metric.name}{chosen}[{window}]{moment}))"
        for metric in (storage_clients.SECONDS, storage_clients.OPERATIONS)
    )
    return f"{spent} / ({count} >= {fewest})"


def juicefs_seconds(matchers: str, window: str, fewest: int, moment: str) -> str:
    """Return the same for mounts of JuiceFS, which count all kinds of operations together."""
    chosen = f"{{{matchers}}}" if matchers else ""
    volume = f"sum {by('node', 'vol_name')}"
    spent, count = (
        f"{volume} (increase({JUICEFS_SECONDS}_{part}{chosen}[{window}]{moment}))"
        for part in ("sum", "count")
    )
    named = (
        f'label_replace({spent} / ({count} >= {fewest}), "filesystem", "$1", "vol_name", "(.*)")'
    )
    typed = f'label_replace({named}, "type", "juicefs", "", "")'
    return worst(f'label_replace({typed}, "operation", "any", "", "")', *CLIENT)


def client_seconds(matchers: str, window: str, fewest: int = 1, moment: str = "") -> str:
    """Return the mean duration of an operation on any file system with client metrics."""
    ours, juicefs = (
        mean(matchers, window, fewest, moment) for mean in (operation_seconds, juicefs_seconds)
    )
    return f"({ours} or {juicefs})"


def for_each_nfs_request(counted: Metric, matchers: str, window: str, moment: str = "") -> str:
    """Return counts per NFS request, by node and kind of operation.

    Pods that mount one export share its counters, so each reports all of them: ratios of sums are
    valid nevertheless, sums would not be.

    Args:
        counted: one of NFS' series other than the requests: seconds, retransmissions, timeouts.
        matchers: of the series.
        window: over which both are counted.
        moment: end of the window, as in `operation_seconds`.
    """
    above, below = (
        f"sum {by('node', 'operation')} (increase({metric.name}{{{matchers}}}[{window}]{moment}))"
        for metric in (counted, host.NFS_OPERATIONS)
    )
    return f"({above} / ({below} >= 1))"
