"""The nodes that a job is to run on, as their agents see them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rankscope_agent.contract.metrics import (
    gpus,
    host,
    kernel_log,
    nccl_log,
    netdev,
    rdma,
    summary,
    training,
)
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.preflight.job import NodeInterface, NotApplicableError, UndecidedError
from rankscope_analyzers.preflight.outcome import Outcome, failed, passed, warned
from rankscope_analyzers.text.name_lists import listed, named

if TYPE_CHECKING:
    from rankscope_analyzers.intake.observed import Observed, Series

PORT_ACTIVE = 4.0
"""States of RDMA ports in which data passes: this one and higher ones."""

READS: tuple[Metric, ...] = (
    gpus.GPU_INFO,
    gpus.GPU_LOST,
    gpus.GPU_UNRESPONSIVE,
    gpus.GPU_RECOVERY_ACTION,
    gpus.GPU_REMAP_PENDING,
    gpus.GPU_REMAP_FAILURE,
    gpus.GPU_RETIRED_PENDING,
    gpus.GPU_ECC_ERRORS,
    gpus.GPU_SRAM_THRESHOLD,
    gpus.GPU_PCIE_WIDTH,
    gpus.GPU_PCIE_WIDTH_MAX,
    kernel_log.XID_LAST,
    kernel_log.SXID_LAST,
    kernel_log.KERNEL_LOG_INFO,
    rdma.DEVICE_INFO,
    rdma.DEVICE_LOST,
    rdma.PORT_INFO,
    rdma.PORT_STATE,
    rdma.PORT_RATE,
    rdma.GPUDIRECT,
    netdev.PCI_LINK_RATIO,
    netdev.INFO,
    netdev.UP,
    host.CLOCK_SYNCHRONIZED,
    host.CLOCK_MAX_ERROR,
    summary.JOB_NCCL_INFO,
    nccl_log.NCCL_NET_INFO,
    training.RANK_INFO,
)


@dataclass(frozen=True, slots=True)
class Pool:
    """What was read of the nodes.

    Args:
        observed: their series.
        silent: a sentence for each agent that returned nothing.
        now_unix_seconds: when it was read.
        since_unix_seconds: earlier errors do not count.
    """

    observed: Observed
    silent: Sequence[str]
    now_unix_seconds: float
    since_unix_seconds: float

    @property
    def nodes(self) -> Sequence[str]:
        """The nodes that were read, in order."""
        return sorted(self.observed.nodes)

    def of(self, metric: Metric) -> Mapping[str, Sequence[Series]]:
        """Return a metric's series by node."""
        found: dict[str, list[Series]] = defaultdict(list)
        for series in self.observed.of(metric):
            found[series.node].append(series)
        return found

    def links(self, metric: Metric, what: str) -> Mapping[str, Sequence[Series]]:
        """Return a metric's series of RDMA devices by node, without those of virtual functions.

        These are down until a pod has them, and share the link that they are a part of.

        Raises:
            NotApplicableError: no node has any.
            UndecidedError: some have none.
        """
        virtual = {
            (one.node, one.labels.get("device"))
            for one in self.observed.of(rdma.DEVICE_INFO, function=rdma.VIRTUAL)
        }
        return {
            node: [one for one in several if (node, one.labels.get("device")) not in virtual]
            for node, several in self.read(metric, what).items()
        }

    def read(self, metric: Metric, what: str) -> Mapping[str, Sequence[Series]]:
        """Return a metric's series by node, if every node has some.

        Raises:
            NotApplicableError: no node has any.
            UndecidedError: some have none.
        """
        found = self.of(metric)
        if not found:
            raise NotApplicableError(f"no node shows {what}")
        blind = [node for node in self.nodes if node not in found]
        if blind:
            raise UndecidedError(f"{named(blind, 'node')} {_shows(blind)} no {what}")
        return found

    def need_any(self, metrics: Sequence[Metric], what: str) -> None:
        """Make sure that every node with GPUs shows one of these metrics.

        Raises:
            UndecidedError: some do not.
        """
        showing = self.observed.nodes_with(metrics)
        blind = sorted(self.observed.nodes_with((gpus.GPU_INFO,)) - showing)
        if blind:
            raise UndecidedError(f"{named(blind, 'node')} {_shows(blind)} not {what}")


def _shows(nodes: Sequence[str]) -> str:
    return "shows" if len(nodes) == 1 else "show"


def interfaces(pool: Pool) -> Mapping[str, Mapping[str, NodeInterface]]:
    """Return the network interfaces that each node shows, by name; nodes may show none."""
    up = {(one.node, one.labels.get("device")): one.last > 0 for one in pool.observed.of(netdev.UP)}
    found: dict[str, dict[str, NodeInterface]] = {node: {} for node in pool.nodes}
    for one in pool.observed.of(netdev.INFO):
        name = one.labels.get("device", "")
        state = NodeInterface(up.get((one.node, name)), one.labels.get("mtu", ""))
        found[one.node][name] = state
    return found


def least_rails(pool: Pool) -> float | None:
    """Return the rate of the slowest node over its active RDMA ports, bytes per second.

    The result is None if a node shows none.
    """
    try:
        states = pool.links(rdma.PORT_STATE, "RDMA ports")
        rates = pool.links(rdma.PORT_RATE, "rates of RDMA ports")
    except (NotApplicableError, UndecidedError):
        return None
    active = {_port(one) for ports in states.values() for one in ports if one.last >= PORT_ACTIVE}
    sums = [sum(one.last for one in ports if _port(one) in active) for ports in rates.values()]
    return min(sums) or None


def _port(series: Series) -> tuple[str, str, str]:
    return series.node, series.labels.get("device", ""), series.labels.get("port", "")


def alike(by_node: Mapping[str, object], what: str, remedy: str, *, hard: bool) -> Outcome:
    """Return whether something is the same on all nodes, naming those that differ from most.

    Args:
        by_node: what each has.
        what: its name, such as "driver".
        remedy: what to do about the odd ones.
        hard: True if a difference makes a job slower, rather than being a risk.
    """
    counts = Counter(by_node.values())
    ordered = sorted(counts, key=lambda value: (-counts[value], str(value)))
    usual = ordered[0]
    if len(ordered) == 1:
        return passed(f"{what} {usual} on {named(sorted(by_node), 'node')}")
    odd = [node for node in sorted(by_node) if by_node[node] != usual]
    others = listed(sorted({str(by_node[node]) for node in odd}))
    seen = f"{what} {others} on {named(odd, 'node')}, {usual} on most"
    conclude = failed if hard else warned
    return conclude(seen, f"the same {what} on all nodes", remedy)


def none_of(
    places: Iterable[str], sound: str, seen: str, expected: str, remedy: str, *, hard: bool = True
) -> Outcome:
    """Return that nothing is wrong, or where something is.

    Args:
        places: where it is wrong, such as "GPU 3 of node a".
        sound: what to report if there are none.
        seen: what is wrong, before the locations.
        expected: how it should be.
        remedy: what to do about it.
        hard: True to fail the nodes rather than warn.
    """
    wrong = sorted(set(places))
    if not wrong:
        return passed(sound)
    return (failed if hard else warned)(f"{seen}: {listed(wrong)}", expected, remedy)


def gpu_of(series: Series) -> str:
    """Return which GPU a series is about."""
    labels = series.labels
    known = labels.get("gpu") or labels.get("uuid") or labels.get("pci") or "unknown"
    return f"GPU {known} of node {series.node}"


def where(
    found: Mapping[str, Sequence[Series]],
    bad: Callable[[Series], bool],
    name: Callable[[Series], str] = gpu_of,
) -> list[str]:
    """Return what the faulty series are about."""
    return [name(series) for several in found.values() for series in several if bad(series)]
