"""The series of one job's NCCL logs: pure, from facts and verdict to samples.

Names that a log can choose (networks, devices, operations, codes) become labels only if they are
known; all others share one label.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Set

from rankscope_agent.contract.metrics import nccl_log as metrics
from rankscope_agent.contract.model import Metric, Sample
from rankscope_agent.contract.nccl.facts import Facts, Transport
from rankscope_agent.contract.nccl.signs import IB_DEVICE
from rankscope_agent.contract.nccl.verdict import CommunicatorVerdict, JobVerdict
from rankscope_agent.contract.nccl.warnings import label
from rankscope_agent.sources.pods.log_directories import PodIdentity

EXPECTED = "expected"
"""Reason of a socket fallback if neither the node nor the pod has an active RDMA port: there was
nothing else. A pod may have its own adapter that the node does not see; NCCL then names it."""

NETWORKS = frozenset(
    {
        "IB",
        "Socket",
        "AWS Libfabric",
        "Libfabric",
        "OFI",
        "gIB",
        "FasTrak",
        "FastSocket",
        "GPUDirectTCPX",
        "GPUDirectTCPX_v7",
        "UCX",
        "IBext",
        *(f"IBext_v{version}" for version in range(4, 13)),
    }
)
"""Names that NCCL and the plugins in use give their networks."""

PHASES = ("total", "kernels", "alloc", "bootstrap", "allgathers", "topo", "graphs", "connections")

_LOCAL = re.compile(
    r"(P2P/(?:direct pointer|IPC|CUMEM|MNNVL|indirect|common device)|SHM(?:/direct)?)"
)
_PLAIN_VERSION = re.compile(r"\d{1,2}\.\d{1,3}\.\d{1,3}(\+cuda\d{1,2}\.\d{1,2})?")


def job_samples(
    owner: PodIdentity, facts: Facts, verdict: JobVerdict, devices: Set[str], *, rdma_active: bool
) -> Iterator[Sample]:
    """Yield the series of the logs of one pod (or of the node itself).

    Args:
        owner: the owner of the logs.
        facts: the contents of the logs.
        verdict: what they prove.
        devices: the node's RDMA devices; only these become labels.
        rdma_active: whether the node has an active RDMA port.
    """
    pod = (owner.namespace, owner.name)
    own = any(IB_DEVICE in process.signs for process in facts.processes.values())
    yield from _network_samples(pod, owner.uid, verdict, rdma_active or own)
    yield from _connection_samples(pod, verdict)
    yield from _communicator_samples(pod, verdict)
    yield from _problem_samples(pod, facts, devices)


def _network_samples(
    pod: tuple[str, str], uid: str, verdict: JobVerdict, rdma_active: bool
) -> Iterator[Sample]:
    network = verdict.network
    state = {True: 1, False: 0, None: -1}[network.socket_fallback]
    reason = EXPECTED if state == 1 and not rdma_active else network.reason
    yield Sample(metrics.NCCL_SOCKET_FALLBACK, (*pod, reason), state)
    version = verdict.nccl_version or ""
    known = version if _PLAIN_VERSION.fullmatch(version) else "unknown"
    selected = verdict.net_selected
    net = _bounded(selected, NETWORKS) if selected else "unknown"
    yield Sample(metrics.NCCL_NET_INFO, (*pod, uid, net, _plugin(net), known), 1)
    yield Sample(metrics.NCCL_GDR_MISSING, pod, network.gdr_missing)


def _bounded(name: str, known: Set[str]) -> str:
    return name if name in known else "other"


def _plugin(net: str) -> str:
    """Return whether a network is built into NCCL or provided by a plugin."""
    if net in {"IB", "Socket"}:
        return "internal"
    return "unknown" if net == "unknown" else "external"


def _connection_samples(pod: tuple[str, str], verdict: JobVerdict) -> Iterator[Sample]:
    counts: Counter[tuple[str, str, str]] = Counter()
    for transport, count in verdict.connections.items():
        gdr = "true" if transport.gdr else "false"
        scope = "inter_node" if transport.is_net or transport.is_fabric else "intra_node"
        counts[_transport_label(transport), gdr, scope] += count
    for labels, count in counts.items():
        yield Sample(metrics.NCCL_CONNECTIONS, (*pod, *labels), count)


def _transport_label(transport: Transport) -> str:
    kind, _, name = transport.name.partition("/")
    if kind == "NET":
        return f"NET/{_bounded(name, NETWORKS)}"
    if kind == "COLLNET":
        return "COLLNET"
    match = _LOCAL.match(transport.name)
    return match[1] if match else "other"


def _communicator_samples(pod: tuple[str, str], verdict: JobVerdict) -> Iterator[Sample]:
    members = [m for c in verdict.communicators for m in c.communicator.members]
    begun = sum(m.started or m.complete for m in members)
    yield Sample(metrics.NCCL_RANKS_EXPECTED, pod, begun)
    yield Sample(metrics.NCCL_RANKS_INITIALIZED, pod, sum(m.complete for m in members))
    if channels := _channels(verdict.communicators):
        yield Sample(metrics.NCCL_CHANNELS, (*pod, "lowest"), min(channels))
        yield Sample(metrics.NCCL_CHANNELS, (*pod, "highest"), max(channels))
    for phase, seconds in _slowest_phases(verdict.communicators):
        yield Sample(metrics.NCCL_INIT_SECONDS, (*pod, phase), seconds)


def _channels(judged: tuple[CommunicatorVerdict, ...]) -> frozenset[int]:
    """Return the channel counts of the largest communicators that state any."""
    named = [c.communicator for c in judged if c.communicator.channels]
    largest = max((one.nranks or 0 for one in named), default=0)
    return frozenset(n for one in named if (one.nranks or 0) == largest for n in one.channels)


def _slowest_phases(judged: tuple[CommunicatorVerdict, ...]) -> Iterator[tuple[str, float]]:
    members = [m for c in judged for m in c.communicator.members]
    for phase in PHASES:
        seconds = [m.init_seconds[phase] for m in members if phase in m.init_seconds]
        if phase == "bootstrap" and not seconds:
            seconds = [s for m in members if (s := m.process.bootstrap_seconds) is not None]
        if seconds:
            yield phase, max(seconds)


def _problem_samples(pod: tuple[str, str], facts: Facts, devices: Set[str]) -> Iterator[Sample]:
    warned: Counter[str] = Counter()
    for code, warning in facts.warnings.items():
        warned[label(code)] += warning.count
    yield from _counts(metrics.NCCL_WARNINGS, pod, warned)
    errors: Counter[tuple[str, str]] = Counter()
    for (device, status), count in facts.ib_errors.items():
        errors[_bounded(device, devices), status] += count
    for labels, count in errors.items():
        yield Sample(metrics.NCCL_IB_ERRORS, (*pod, *labels), count)
    yield from _counts(metrics.NCCL_TIMEOUTS, pod, facts.watchdog.counts())
    yield Sample(metrics.NCCL_UNPARSED, pod, facts.unparsed + facts.beyond_limits)


def _counts(metric: Metric, pod: tuple[str, str], counts: Counter[str]) -> Iterator[Sample]:
    for name, count in counts.items():
        yield Sample(metric, (*pod, name), count)
