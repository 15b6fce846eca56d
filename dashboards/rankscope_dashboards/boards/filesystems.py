"""Panels about the file systems that a job uses, as the clients on its nodes count them."""

from __future__ import annotations

from rankscope_agent.contract.metrics import host, storage_clients
from rankscope_dashboards.expressions import volumes
from rankscope_dashboards.expressions.promql import by
from rankscope_dashboards.expressions.queries import (
    CLUSTER,
    FEW,
    JOB,
    MANY,
    NODE,
    job_nodes,
    of,
    rate,
    whole,
)
from rankscope_dashboards.expressions.storage import client_seconds, for_each_nfs_request
from rankscope_dashboards.parts import links, shared
from rankscope_dashboards.parts.fields import colored, columns, lettered, override
from rankscope_dashboards.parts.panels import BAD, GOOD, Panel, Table, TimeSeries, rows, targets

NO_CLIENT = "no client of Lustre or CephFS, or agents do not read debugfs (--path.debugfs)"
NO_MOUNT = f"{NO_CLIENT}; no mount of JuiceFS is scraped"
NO_NFS = "no NFS mount, or agents do not see the node's processes (hostPID, component tier-1)"
NO_VOLUMES = "no claims, or neither kubelets nor kube-state-metrics are scraped"

SLOW = ((None, GOOD), (0.05, BAD))
"""Seconds; `RankscopeStorageClientSlow` fires at this value if other nodes wait half as long."""


def panels(runbooks: str) -> list[Panel]:
    """Return the panels."""
    slow = links.runbook(runbooks, "RankscopeStorageClientSlow")
    return [
        TimeSeries(
            title="Duration of an operation on a file system",
            description="Mean duration of reads, writes and metadata operations, by node and file"
            f" system, of JuiceFS of any; the {FEW} longest. One node above the others has a slow"
            " way there; all of them together have a slow file system.",
            unit="s",
            minimum=0,
            targets=targets(
                (
                    f"{client_seconds(NODE, '$__rate_interval')} and topk({FEW},"
                    f" {job_nodes(client_seconds(NODE, '$__range', moment=' @ end()'))})",
                    "{{node}} {{type}} {{filesystem}} {{operation}} {{cluster}}",
                )
            ),
            overrides=lettered(),
            several=True,
            steps=SLOW,
            missing=NO_MOUNT,
            links=[slow, links.runbook(runbooks, "RankscopeSlowStorage")],
        ),
        TimeSeries(
            title="Bytes read from and written to Lustre and CephFS",
            description="What the job's nodes read and write, by node and file system, other"
            f" programs included; the {FEW} that move most.",
            unit="Bps",
            minimum=0,
            targets=targets((_moved(), "{{node}} {{filesystem}} {{direction}} {{cluster}}")),
            overrides=lettered(),
            several=True,
            missing=NO_CLIENT,
        ),
        _nfs_seconds(runbooks),
        _nfs_repeated(runbooks),
        _volumes(runbooks),
    ]


def _nfs_seconds(runbooks: str) -> Panel:
    """Return how long NFS servers take to answer the job's nodes."""
    mean = for_each_nfs_request(host.NFS_ROUND_TRIP, NODE, "$__rate_interval")
    whole_range = for_each_nfs_request(host.NFS_ROUND_TRIP, NODE, "$__range", " @ end()")
    return TimeSeries(
        title="Round trip of an NFS request",
        description="Mean time between sending a request and its answer, by node and kind of"
        f" operation, over the mounts of all training pods and of the node; the {FEW} longest. One"
        " node above the others has a slow way to the server; all of them together have a slow"
        " server.",
        unit="s",
        minimum=0,
        targets=targets(
            (
                f"{job_nodes(mean)} and topk({FEW}, {job_nodes(whole_range)})",
                "{{node}} {{operation}} {{cluster}}",
            )
        ),
        overrides=lettered(),
        several=True,
        steps=SLOW,
        missing=NO_NFS,
        links=[links.runbook(runbooks, "RankscopeSlowStorage")],
    )


def _nfs_repeated(runbooks: str) -> Panel:
    """Return how many NFS requests had to be sent again, as the network or the server lost them."""
    kinds = {"sent again": host.NFS_RETRANSMISSIONS, "timed out": host.NFS_TIMEOUTS}
    each = {
        name: for_each_nfs_request(counted, NODE, "$__rate_interval")
        for name, counted in kinds.items()
    }
    return TimeSeries(
        title="NFS requests without an answer",
        description="Of the requests of the job's nodes, those that were sent again and those that"
        " timed out, on the worst node and for the worst kind of operation. Several times the"
        " number of requests means a server that is away: what uses the mount hangs.",
        unit="percentunit",
        minimum=0,
        targets=targets(*((f"max({job_nodes(one)})", name) for name, one in each.items())),
        overrides=colored(tuple(kinds)),
        missing=NO_NFS,
        links=[links.runbook(runbooks, "RankscopeSlowStorage")],
    )


def _volumes(runbooks: str) -> Panel:
    """Return the table of the claims of the job's pods."""
    available = f"{volumes.AVAILABLE}{{{CLUSTER}}}"
    share = volumes.of_jobs(f"{available} / {volumes.CAPACITY}{{{CLUSTER}}}", JOB, CLUSTER)
    pace = f"(-deriv({available}[$__range]) > 0)"
    full = volumes.of_jobs(f"{available} / {pace}", JOB, CLUSTER)
    fullest = f"bottomk({MANY}, {share})"
    values = {"Value #A": "free", "Value #B": "full in"}
    return Table(
        title="Volumes of the job's pods",
        description="Free share of the volumes that the job's pods claim, and when they are full at"
        " the pace of the time range, if they fill; the fullest first.",
        unit="string",
        targets=rows(
            fullest,
            f"({full}) and on (cluster, job_id, namespace, persistentvolumeclaim) {fullest}",
        ),
        transformations=[
            {"id": "merge", "options": {}},
            *columns({**shared.CLUSTER_COLUMN, "persistentvolumeclaim": "claim", **values}),
        ],
        overrides=[
            override("free", {"unit": "percentunit"}),
            override("full in", {"unit": "s"}),
        ],
        missing=NO_VOLUMES,
        links=[links.runbook(runbooks, "RankscopeCheckpointStoreFilling")],
        width=24,
        height=6,
    )


def _moved() -> str:
    labels = by("node", "type", "filesystem", "direction")
    moved = of(storage_clients.BYTES, NODE)
    order = job_nodes(f"sum {labels} ({whole('rate', moved)})")
    return f"sum {labels} ({rate(moved)}) and topk({FEW}, {order})"
