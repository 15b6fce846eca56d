"""Ports with losses, congestion, flaps or lower rates than their peers, as findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import get_args

import pandas as pd

from rankscope_agent.contract.metrics import rdma
from rankscope_agent.contract.metrics.topology import GPU_NIC_INFO
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Evidence, Finding
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.intake.series_table import table
from rankscope_analyzers.layers import rdma_ports
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.rdma_ports import Port
from rankscope_analyzers.layers.series_findings import query_of
from rankscope_analyzers.links import counters as link_counters
from rankscope_analyzers.links import frame as link_frame
from rankscope_analyzers.links.quantities import LinkFault

READS: tuple[Metric, ...] = (*link_frame.READS, *rdma_ports.READS, GPU_NIC_INFO)

KINDS = frozenset(get_args(LinkFault))


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield what is wrong with the links of the job's nodes, except those next to others' GPUs."""
    readings = [*_readings(observed, job)]
    if not readings:
        return
    frame = _frame(readings, observed, job)
    series = {column: one.name for column, one, _ in readings}
    of_others = _of_others(observed, job)
    for found in link_counters.analyze(frame):
        ports = {(node, device) for node in found.where.nodes for device in found.where.devices}
        if ports and ports <= of_others:
            continue
        everywhere = len(job.nodes) > 1 and set(found.where.nodes) == job.nodes
        where = replace(found.where, nodes=() if everywhere else found.where.nodes)
        evidence = tuple(_with_series(item, series) for item in found.evidence)
        yield replace(
            found,
            where=where,
            evidence=evidence,
            since_unix_seconds=_since(found, frame),
            source=query_of(evidence, job.job_id, where),
        )


def _with_series(item: Evidence, series: Mapping[str, str]) -> Evidence:
    """Return evidence that names the series behind its columns, and the parts of a sum."""
    columns = item.source.split("+")
    named = dict.fromkeys(series[column] for column in columns if column in series)
    if not named:
        return item
    parts = f" ({item.source})" if set(columns) != set(named) else ""
    return replace(item, source=" + ".join(named), meaning=f"{item.meaning}{parts}")


def _since(found: Finding, frame: pd.DataFrame) -> float | None:
    """Return when it began, None if it was there at the first observation."""
    began = found.since_unix_seconds
    return began if began is not None and began > float(frame["t_unix_seconds"].min()) else None


def _readings(observed: Observed, job: JobView) -> Iterator[tuple[str, Series, Port]]:
    """Yield column, series and port of what the analyzers read of the job's nodes."""
    for series, port in rdma_ports.of_ports(observed.on(job.nodes), link_frame.READS):
        column = link_frame.column_of(series.name, series.labels)
        if column is not None:
            yield column, series, port


def _frame(
    readings: Iterable[tuple[str, Series, Port]], observed: Observed, job: JobView
) -> pd.DataFrame:
    """Return the frame of `link_frame`, of the ports on the job's nodes."""
    cells = ((port, column, series) for column, series, port in readings)
    ports = table(cells, link_frame.KEY, "t_unix_seconds").assign(job_id=job.job_id)
    for known in (_served(job), _models(observed)):
        ports = ports.merge(known, on=["node", "device"], how="left")
    return ports


def _of_others(observed: Observed, job: JobView) -> frozenset[tuple[str, str]]:
    """Return the nodes and devices that are nearest to GPUs of which the job holds none.

    On nodes where that is not known of all ranks there are none.
    """
    unknown = {
        location.node
        for location in job.locations.values()
        if location.by_local_rank or not location.nics
    }
    near = {
        (series.node, series.labels.get("device", ""))
        for series in observed.of(GPU_NIC_INFO)
        if series.node in job.nodes - unknown
    }
    own = {(one.node, nic) for one in job.locations.values() for nic in one.nics}
    return frozenset(near - own)


def _models(observed: Observed) -> pd.DataFrame:
    """Return the board id of each node's devices."""
    found = {
        (series.node, series.labels.get("device", "")): series.labels.get("board_id", "")
        for series in observed.of(rdma.DEVICE_INFO)
    }
    rows = [(*device, model) for device, model in found.items()]
    return pd.DataFrame(rows, columns=["node", "device", "model"], dtype=object)


def _served(job: JobView) -> pd.DataFrame:
    """Return the ranks and GPUs that each node's devices serve, a row for each."""
    rows = [
        (location.node, nic, location.rank, location.gpu or None)
        for location in job.locations.values()
        for nic in location.nics
    ]
    return pd.DataFrame(rows, columns=["node", "device", "rank", "gpu"], dtype=object)
