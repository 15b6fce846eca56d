"""PromQL over failures: how many there were in an hour, and rates per 1,000 GPU-hours.

A recording rule counts them hour by hour; panels sum its hours. Querying the counters themselves
would read weeks of all nodes' series.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rankscope_agent.contract.kernel.vocabulary import Cause
from rankscope_agent.contract.kernel.xid import XIDS
from rankscope_agent.contract.metrics import agent, kernel_log
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.gpus.failure_kinds import (
    ENDS_WORK,
    GPU_KINDS,
    KINDS,
    NODE_KINDS,
    THOUSAND,
    GpuKind,
    NodeKind,
    published_rate,
)
from rankscope_dashboards.expressions.events import recorded
from rankscope_dashboards.expressions.promql import before, by, happened

HOURLY = "1h"
FAILURES = "cause:rankscope_failures:count1h"
GPU_HOURS = "cluster:rankscope_gpus_watched:count1h"
"""GPUs whose node's kernel log is read: each of these values represents an hour."""

NORMAL_QUANTILE = 1.96
"""Quantile of 97.5 % of the normal distribution."""

GROWN: Mapping[Metric, str] = {
    one: f"node:{one.name.removesuffix('_total')}:grown1h"
    for one in (kernel_log.GPU_FALLEN, kernel_log.GPU_INIT_FAILURES)
}
"""Records of where counters grew that agents export of every GPU, as 0 where nothing happened. Four
kinds of failures count them, and reading them for each kind would cost ten times as much."""

Counted = tuple[Metric, str]
"""A counter, and matchers of its labels."""

WITHOUT_XID: dict[Cause, tuple[Counted, ...]] = {
    "pcie": ((kernel_log.GPU_FALLEN, ""),),
    "gpu_hardware": ((kernel_log.GPU_INIT_FAILURES, ""),),
    "nvlink_fabric": ((kernel_log.SXID_ERRORS, f'severity=~"{"|".join(sorted(ENDS_WORK))}"'),),
}
"""Counters of failures that have no Xid, by cause."""

PODS = f'{agent.COLLECTOR_SUCCESS.name}{{collector="pods"}}'
"""Present wherever preempted pods would be seen."""


def failures() -> Iterator[tuple[str, str]]:
    """Yield causes, and how many nodes, or jobs, failed by each within the hour; 0 where none did.

    The expressions read the records of `grown` and that of `gpu_hours`.
    """
    for of_gpus in GPU_KINDS:
        yield of_gpus.name, f"{_of_gpus(of_gpus)}\nor 0 * {GPU_HOURS}"
    for of_nodes in NODE_KINDS:
        none = f"0 * count {by()} ({_sign(of_nodes)})"
        yield of_nodes.name, f"{_of_nodes(of_nodes)}\nor {none}"


def grown() -> Iterator[tuple[str, str]]:
    """Yield the records that `failures` reads, and their expressions."""
    for counter, record in GROWN.items():
        needed, grown_of_gpus = recorded(counter, HOURLY, "gpu")
        yield needed
        yield record, f"count {by('node')} {grown_of_gpus}"


def gpu_hours() -> str:
    """Return how many GPUs were watched; a GPU that two agents report counts once."""
    return f"count {by()} (max {by('node', 'gpu', 'uuid')} ({kernel_log.GPU_FALLEN.name}))"


def _sign(kind: NodeKind) -> str:
    """Return series that are present wherever failures of a kind would be seen."""
    return kernel_log.KERNEL_LOG_INFO.name if kind.subject == "node" else PODS


def _of_gpus(kind: GpuKind) -> str:
    chosen = f'{_codes(kind)},severity=~"{"|".join(sorted(ENDS_WORK))}"'
    others = (one for cause in sorted(kind.causes) for one in WITHOUT_XID.get(cause, ()))
    return _count(((kernel_log.XID_ERRORS, chosen), *others), "node")


def _codes(kind: GpuKind) -> str:
    """Return a matcher of the kind's Xids, by exclusion if fewer are excluded."""
    within = [str(code) for code, known in XIDS.items() if known.cause in kind.causes]
    beyond = [str(code) for code, known in XIDS.items() if known.cause not in kind.causes]
    if len(beyond) < len(within):
        return f'xid!~"{"|".join(beyond)}"'
    return f'xid=~"{"|".join(within)}"'


def _of_nodes(kind: NodeKind) -> str:
    chosen = f'{kind.label}=~"{"|".join(sorted(kind.values))}"' if kind.label else ""
    return _count(((kind.counter, chosen),), kind.subject)


def _count(counters: Iterable[Counted], subject: str) -> str:
    """Return on how many subjects any counter grew within the hour.

    The value that a node's counters had when its agent was first scraped is older than that.
    """
    grown = " or ".join(_grown(*one, subject) for one in counters)
    known = before(agent.BUILD_INFO.name, HOURLY)
    return f"count {by()} (count {by(subject)} (({grown}) and on (cluster, node) {known}))"


def _grown(counter: Metric, chosen: str, subject: str) -> str:
    if counter in GROWN:
        return GROWN[counter]
    return f"count {by(*dict.fromkeys(('node', subject)))} {happened(counter, HOURLY, chosen)}"


def rates(chosen: str) -> tuple[str, str, str, str, str]:
    """Return queries by cause: failures, their rate, its confidence limits, the published rate.

    The interval is Byar's approximation to that of the Poisson distribution (N. Breslow, N. Day,
    "Statistical Methods in Cancer Research", volume 2, IARC 1987, section 2.3).

    Args:
        chosen: matchers of the clusters that count.
    """
    count = f"sum by (cause) (sum_over_time({FAILURES}{{{chosen}}}[$__range]))"
    hours = f"(sum(sum_over_time({GPU_HOURS}{{{chosen}}}[$__range])) > 0)"
    least, most = f"clamp_min({count}, 1)", f"({count} + 1)"
    return (
        count,
        f"{THOUSAND:.0f} * {count} / on () group_left () {hours}",
        f"{THOUSAND:.0f} * {count} * {_byar(least, '-')} / on () group_left () {hours}",
        f"{THOUSAND:.0f} * {most} * {_byar(most, '+')} / on () group_left () {hours}",
        f"({' or '.join(_published())}) and on () {hours}",
    )


def _byar(count: str, sign: str) -> str:
    root = NORMAL_QUANTILE / 3
    return f"(1 - 1 / (9 * {count}) {sign} {root:.4f} / sqrt({count})) ^ 3"


def _published() -> Iterator[str]:
    for kind in KINDS:
        rate = published_rate(kind.published)
        if rate is not None:
            yield f'label_replace(vector({rate:.3g}), "cause", "{kind.name}", "", "")'
