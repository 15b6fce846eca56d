"""Panels about the file systems under a job, as the clients on its nodes count them."""

from __future__ import annotations

from rankscope_agent.contract.metrics import storage_clients
from rankscope_dashboards.expressions.promql import by
from rankscope_dashboards.expressions.queries import FEW, NODE, job_nodes, of, rate, whole
from rankscope_dashboards.expressions.storage import operation_seconds
from rankscope_dashboards.parts import links
from rankscope_dashboards.parts.fields import lettered
from rankscope_dashboards.parts.panels import BAD, GOOD, Panel, TimeSeries, targets

NO_CLIENT = "no client of Lustre or CephFS, or agents do not read debugfs (--path.debugfs)"

SLOW = ((None, GOOD), (0.05, BAD))
"""Seconds; `RankscopeStorageClientSlow` fires there, where other nodes wait half as long."""


def panels(runbooks: str) -> list[Panel]:
    """Return the panels."""
    slow = links.runbook(runbooks, "RankscopeStorageClientSlow")
    return [
        TimeSeries(
            title="Duration of an operation on Lustre and CephFS",
            description="Mean duration of reads, writes and metadata operations, by node and file"
            f" system; the {FEW} longest. One node above the others has a slow way there; all of"
            " them together have a slow file system.",
            unit="s",
            minimum=0,
            targets=targets(
                (
                    f"{operation_seconds(NODE, '$__rate_interval')} and topk({FEW},"
                    f" {job_nodes(operation_seconds(NODE, '$__range', moment=' @ end()'))})",
                    "{{node}} {{type}} {{filesystem}} {{operation}} {{cluster}}",
                )
            ),
            overrides=lettered(),
            several=True,
            steps=SLOW,
            missing=NO_CLIENT,
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
    ]


def _moved() -> str:
    labels = by("node", "type", "filesystem", "direction")
    moved = of(storage_clients.BYTES, NODE)
    order = job_nodes(f"sum {labels} ({whole('rate', moved)})")
    return f"sum {labels} ({rate(moved)}) and topk({FEW}, {order})"
