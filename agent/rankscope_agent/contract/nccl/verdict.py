"""What an NCCL log proves: the network that carries the data, GPUDirect, missing ranks.

Pure. One rule holds throughout: only connections (and errors of the data path) prove a transport;
what the log does not show is None, never a guess. `Using network Socket` alone proves nothing: NCCL
prints it on every machine without an RDMA adapter, including single nodes and NVLink domains.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rankscope_agent.contract.nccl import signs as nccl_signs
from rankscope_agent.contract.nccl.communicators import (
    Communicator,
    communicators,
    connects_all,
    local_pairs,
)
from rankscope_agent.contract.nccl.facts import Edges, Facts, Process, Transport

SOCKET = "NET/Socket"

_LATE = re.compile(r"2\.(?:2[7-9]|[3-9]\d)\b")
"""Versions that initialise sockets in addition to the network they choose."""

# Reasons; a closed vocabulary, because they are labels.
FORCED = "forced_by_environment"
PLUGIN_FAILED = "plugin_failed"
VERBS_MISSING = "verbs_library_missing"
NO_DEVICE = "no_rdma_device"
WRONG_INTERFACE = "wrong_interface"
UNEXPLAINED = "unexplained"
OTHER_NETWORK = "other_network"
SINGLE_RANK = "single_rank"
SINGLE_NODE = "single_node"
LOCAL_ONLY = "local_only"
SOCKET_SELECTED = "socket_selected_no_connection_seen"
NO_CONNECTION = "no_connection_seen"
NO_NETWORK_LINE = "no_network_line"
COMMUNICATOR, RING, OTHERS = "communicator", "ring", "others"
"""The sources of the number of ranks."""

REASONS: tuple[str, ...] = (
    FORCED,
    PLUGIN_FAILED,
    VERBS_MISSING,
    NO_DEVICE,
    WRONG_INTERFACE,
    UNEXPLAINED,
    OTHER_NETWORK,
    SINGLE_RANK,
    SINGLE_NODE,
    LOCAL_ONLY,
    SOCKET_SELECTED,
    NO_CONNECTION,
    NO_NETWORK_LINE,
)


@dataclass(frozen=True, slots=True)
class NetworkVerdict:
    """The network that carries data between nodes; None stands for what the log does not show.

    Args:
        socket_fallback: whether data between nodes uses TCP sockets.
        reason: one of `REASONS`.
        gdr: whether GPUs and network adapters exchange data directly, at least in part.
        gdr_missing: number of connections over RDMA networks without GPUDirect.
        transports: of the connections between nodes, and of errors on the data path.
    """

    socket_fallback: bool | None
    reason: str
    gdr: bool | None
    gdr_missing: int
    transports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CommunicatorVerdict:
    """A communicator and what its own connections prove."""

    communicator: Communicator
    network: NetworkVerdict


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """What the logs of a job prove.

    Args:
        nranks: size of the largest communicator (or printed ring); if none was printed, of the job
            according to other writers of its log; None if unknown.
        nranks_from: the source of `nranks`: `communicator`, `ring` or `others`.
        world_size: of the job according to other writers of its log.
        ranks_seen: ranks in lines about communicators; without any, those in tags of launchers;
            without any of these, owners of connections.
        net_selected: the network that most processes selected, as printed.
        connections: distinct connections by transport, in all communicators.
    """

    nccl_version: str | None
    nranks: int | None
    nranks_from: str | None
    world_size: int | None
    ranks_seen: tuple[int, ...]
    net_selected: str | None
    network: NetworkVerdict
    init_complete_ranks: tuple[int, ...]
    communicators: tuple[CommunicatorVerdict, ...]
    connections: Mapping[Transport, int]


def judge(facts: Facts) -> JobVerdict:
    """Judge the facts, whose edges must have been counted."""
    found, loose = communicators(facts)
    judged = tuple(CommunicatorVerdict(c, _judge_communicator(c)) for c in found)
    connections: Counter[Transport] = Counter()
    for edges in (*(c.edges for c in found), *(part.counts for part in loose), facts.headless):
        connections.update(edges)
    nranks, stated_by = _largest(facts, loose)
    return JobVerdict(
        nccl_version=facts.version or facts.stated_version or None,
        nranks=nranks,
        nranks_from=stated_by,
        world_size=facts.world_size or None,
        ranks_seen=_ranks_seen(facts, loose),
        net_selected=_net_selected(facts),
        network=_judge_job(facts, judged, loose, connections),
        init_complete_ranks=tuple(sorted({r for c in found for r in c.complete_ranks})),
        communicators=judged,
        connections=connections,
    )


def _judge_communicator(communicator: Communicator) -> NetworkVerdict:
    names = {t.name for t in communicator.edges if t.is_net}
    processes = [member.process for member in communicator.members]
    fallback, reason = _fallback(names, processes)
    if fallback is None:
        fallback, reason = _without_connections(communicator)
    gdr, missing = _gdr(communicator.edges, names)
    return NetworkVerdict(fallback, reason, gdr, missing, tuple(sorted(names)))


def _judge_job(
    facts: Facts,
    judged: Sequence[CommunicatorVerdict],
    loose: Sequence[Edges],
    connections: Mapping[Transport, int],
) -> NetworkVerdict:
    names = {t.name for t in connections if t.is_net}
    for process in facts.processes.values():
        names |= _on_the_data_path(process)
    fallback, reason = _fallback(names, list(facts.processes.values()))
    if fallback is None:
        fallback, reason = _all_local(judged)
        if fallback is None and _closed_on_one_host(facts, judged, loose):
            fallback, reason = False, LOCAL_ONLY
        elif fallback is None and _is_on_one_host(facts, judged):
            fallback, reason = False, SINGLE_NODE
    elif fallback is False and any(c.network.reason == SOCKET_SELECTED for c in judged):
        # Connections are made on first use (from 2.22.3): this one's are probably yet to come.
        fallback, reason = None, SOCKET_SELECTED
    if fallback is None and not judged and any(p.network for p in facts.processes.values()):
        reason = NO_CONNECTION
    gdr, missing = _gdr(connections, names)
    return NetworkVerdict(fallback, reason, gdr, missing, tuple(sorted(names)))


def _on_the_data_path(process: Process) -> set[str]:
    """Return the transports of errors on the data path.

    `IBext_v8` and the like are NCCL's IB transport in a separate plugin, whose errors are worded
    like those of NCCL itself.
    """
    own = f"NET/{process.network}" if process.network.startswith("IB") else "NET/IB"
    return {own if name == "NET/IB" else name for name in process.error_transports}


def _fallback(names: Iterable[str], processes: Sequence[Process]) -> tuple[bool | None, str]:
    """Judge by connections and errors on the data path alone."""
    seen = set(names)
    if SOCKET in seen:
        return True, _cause(processes)
    return (False, OTHER_NETWORK) if seen else (None, NO_NETWORK_LINE)


def _cause(processes: Sequence[Process]) -> str:
    """Return why NCCL uses sockets: a setting first, then a failure, then something missing."""
    if any(_forced(process.environment) for process in processes):
        return FORCED
    signs = {sign for process in processes for sign in process.signs}
    if signs & {nccl_signs.PLUGIN_FAILED, "OFI_NO_PROVIDER", "NET_PLUGIN_INIT_FAILED"}:
        return PLUGIN_FAILED
    if nccl_signs.VERBS_MISSING in signs:
        return VERBS_MISSING
    if nccl_signs.NO_IB_DEVICE in signs:
        asked = any("NCCL_IB_HCA" in process.environment for process in processes)
        return WRONG_INTERFACE if asked else NO_DEVICE
    return UNEXPLAINED


def _forced(environment: Mapping[str, str]) -> bool:
    return (
        environment.get("NCCL_NET", "").lower() == "socket"
        or environment.get("NCCL_IB_DISABLE", "0") not in {"0", ""}
        or environment.get("NCCL_NET_PLUGIN", "").lower() == "none"
    )


def _without_connections(communicator: Communicator) -> tuple[bool | None, str]:
    """Judge a communicator without any printed connection over a network."""
    nranks = communicator.nranks
    if nranks == 1:
        return False, SINGLE_RANK
    # NVLink domains count as one node for NCCL, which then needs no network between hosts.
    if communicator.nodes == 1 or any(member.one_process for member in communicator.members):
        return False, SINGLE_NODE
    if communicator.nodes is None and _on_one_host(communicator):
        return False, SINGLE_NODE
    # Nor does a clique of several hosts need one if NVLink connects all of its ranks.
    one_domain = communicator.nodes is None or communicator.mnnvl
    if one_domain and connects_all(communicator.local_pairs, nranks):
        return False, LOCAL_ONLY
    several = (communicator.nodes or 0) > 1 and not communicator.mnnvl
    if several and communicator.networks == ("Socket",):
        return None, SOCKET_SELECTED
    return None, NO_CONNECTION if communicator.networks else NO_NETWORK_LINE


def _on_one_host(communicator: Communicator) -> bool:
    """Return True if every rank occurs exactly once, all on the same host.

    A rank that occurs twice belongs to one of two communicators of that size, both incomplete.
    """
    members = communicator.members
    whole = len(members) == len(communicator.ranks) == communicator.nranks
    hosts = {member.process.host for member in members}
    return whole and len(hosts) == 1 and "" not in hosts


def _closed_on_one_host(
    facts: Facts, judged: Sequence[CommunicatorVerdict], loose: Sequence[Edges]
) -> bool:
    """Return True if connections within a host form a complete ring, as large as any group.

    A ring passes through every rank: one that closes without a network needs none. The threads that
    print the connections may belong to no communicator in the log.
    """
    hosts = {process.host for process in facts.processes.values() if process.host}
    if len(hosts) > 1 or any((c.communicator.nodes or 1) > 1 for c in judged):
        return False
    pairs = {pair for part in loose for pair in local_pairs(part.pairs)}
    pairs |= {pair for c in judged for pair in c.communicator.local_pairs}
    size = max((max(pair) + 1 for pair in pairs), default=0)
    sends, receives = {source for source, _ in pairs}, {target for _, target in pairs}
    claimed = max(facts.largest_comm, facts.world_size)
    # All ranks are below the size, which may be a million: that many different ones are all.
    closed = 1 < len(sends) == len(receives) == size and connects_all(pairs, size)
    return closed and claimed <= size


def _is_on_one_host(facts: Facts, judged: Sequence[CommunicatorVerdict]) -> bool:
    """Return True if the benchmark that wrote the log names one host and nothing contradicts it."""
    hosts = {process.host for process in facts.processes.values() if process.host}
    several = any((c.communicator.nodes or 1) > 1 for c in judged)
    return facts.one_host and len(hosts) <= 1 and not several


def _all_local(judged: Sequence[CommunicatorVerdict]) -> tuple[bool | None, str]:
    """Judge a job without a connection over a network: local if each communicator must be."""
    unknown = [c.network.reason for c in judged if c.network.socket_fallback is None]
    if unknown:
        return None, SOCKET_SELECTED if SOCKET_SELECTED in unknown else unknown[0]
    if not judged:
        return None, NO_NETWORK_LINE
    sizes = [(c.communicator.nranks or 0, c.network.reason) for c in judged]
    return False, max(sizes)[1]


def _gdr(connections: Mapping[Transport, int], names: set[str]) -> tuple[bool | None, int]:
    """Return whether GPUDirect RDMA is used, and the number of RDMA connections without it."""
    rdma = {t: n for t, n in connections.items() if t.is_net and t.name != SOCKET}
    missing = sum(count for transport, count in rdma.items() if not transport.gdr)
    if rdma:
        return any(transport.gdr for transport in rdma), missing
    return (False if SOCKET in names else None), 0


def _largest(facts: Facts, loose: Sequence[Edges]) -> tuple[int | None, str | None]:
    """Return the largest stated number of ranks and its source, NCCL's own statements first."""
    rings = max((edges.ring_size for edges in loose), default=0)
    stated = ((facts.largest_comm, COMMUNICATOR), (rings, RING))
    others = ((facts.group_size, OTHERS), (facts.world_size, OTHERS))
    return next(((size, who) for size, who in (*stated, *others) if size), (None, None))


def _ranks_seen(facts: Facts, loose: Sequence[Edges]) -> tuple[int, ...]:
    if facts.comm_ranks:
        return tuple(sorted(facts.comm_ranks))
    named = facts.tagged_ranks | facts.watchdog.ranks
    return tuple(sorted(named or {rank for edges in loose for rank in edges.owners}))


def _net_selected(facts: Facts) -> str | None:
    chosen = Counter(p.network for p in facts.processes.values() if p.network)
    if chosen:
        return chosen.most_common(1)[0][0]
    signs = {sign for process in facts.processes.values() for sign in process.signs}
    if nccl_signs.IB_DEVICE in signs:
        return "IB"
    # Before 2.6.4 no line names the choice; up to 2.26 sockets are only tried last.
    late = _LATE.match(facts.version) is not None
    return "Socket" if nccl_signs.SOCKET_DEVICE in signs and not late else None
