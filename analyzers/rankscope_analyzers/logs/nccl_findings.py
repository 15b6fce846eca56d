"""What is wrong in a job according to its NCCL logs: pure, from verdict and facts to findings.

Ranks are compared with their peers in the same communicator. What may only be missing from these
files (a rank that is not in them) is no finding.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from rankscope_agent.contract.nccl import signs as nccl_signs
from rankscope_agent.contract.nccl import verdict as nccl_verdict
from rankscope_agent.contract.nccl.communicators import Communicator, network_of
from rankscope_agent.contract.nccl.facts import Facts, Member
from rankscope_agent.contract.nccl.verdict import JobVerdict
from rankscope_analyzers.findings.builder import make_finding
from rankscope_analyzers.findings.finding import Finding, Where
from rankscope_analyzers.text.name_lists import ranks_listed, ranks_named

Kind = Literal[
    "socket_fallback",
    "gdr_missing",
    "intra_node_degraded",
    "init_incomplete",
    "missing_rank",
    "duplicate_rank",
    "world_size_disagrees",
    "network_differs",
    "channels_differ",
    "version_differs",
]

REASON_TEXTS = {
    nccl_verdict.FORCED: "it was asked for (NCCL_NET, NCCL_IB_DISABLE or NCCL_NET_PLUGIN is set)",
    nccl_verdict.PLUGIN_FAILED: "the network plugin failed to start",
    nccl_verdict.VERBS_MISSING: "libibverbs is missing in the image",
    nccl_verdict.NO_DEVICE: "the process sees no RDMA device",
    nccl_verdict.WRONG_INTERFACE: "no RDMA device matches NCCL_IB_HCA",
    nccl_verdict.UNEXPLAINED: "the log does not say why",
}


def findings(facts: Facts, verdict: JobVerdict) -> tuple[Finding, ...]:
    """Return what is wrong, the most costly first; a finding's source is its communicator."""
    found: list[Finding] = [*_socket(facts, verdict), *_degraded(facts, verdict)]
    found.extend(_versions(facts))
    if not verdict.communicators:
        found.extend(_loose_channels(facts))
    for judged in verdict.communicators:
        communicator = judged.communicator
        found.extend(_gdr(judged.network.gdr_missing, judged.network.gdr, communicator))
        if communicator.linked:
            found.extend(finding for compare in COMPARISONS for finding in compare(communicator))
        elif communicator.comparable:
            found.extend(_channels(communicator))
        found.extend(_init(communicator))
    return tuple(found)


def _finding(
    kind: Kind,
    summary: str,
    ranks: Iterable[int],
    hosts: Iterable[str] = (),
    communicator: str = "",
) -> Finding:
    where = Where(nodes=tuple(sorted(hosts)), ranks=tuple(ranks))
    return make_finding(kind, "nccl", "", where, summary, source=communicator)


def _of_members(
    kind: Kind, summary: str, members: Sequence[Member], communicator: str = ""
) -> Finding:
    ranks = sorted({member.rank for member in members})
    hosts = {member.process.host for member in members if member.process.host}
    return _finding(kind, summary, ranks, hosts, communicator)


def _socket(facts: Facts, verdict: JobVerdict) -> Iterator[Finding]:
    if verdict.network.socket_fallback is not True:
        return
    why = REASON_TEXTS[verdict.network.reason]
    hosts = {p.host for p in facts.processes.values() if p.host}
    summary = f"data between nodes goes over TCP sockets: {why}"
    yield _finding("socket_fallback", summary, verdict.ranks_seen, hosts)


def _gdr(missing: int, gdr: bool | None, communicator: Communicator) -> Iterator[Finding]:
    """Compare by direction: a side that reads host memory on purpose does so on every rank."""
    by_direction: dict[str, set[bool]] = defaultdict(set)
    for transport in communicator.edges:
        if transport.is_net and transport.name != nccl_verdict.SOCKET:
            by_direction[transport.direction].add(transport.gdr)
    if gdr and missing and any(len(kinds) == 2 for kinds in by_direction.values()):
        lacking = [m for m in communicator.members if _lacks_gdr(m)]
        summary = (
            f"{missing} connections between nodes lack GPUDirect RDMA while others have it"
            + (f": {ranks_named(m.rank for m in lacking)}" if lacking else "")
        )
        yield _of_members("gdr_missing", summary, lacking, communicator.name)


def _lacks_gdr(member: Member) -> bool:
    return any(
        transport.is_net and transport.name != nccl_verdict.SOCKET and not transport.gdr
        for transport in member.edges.counts
    )


def _degraded(facts: Facts, verdict: JobVerdict) -> Iterator[Finding]:
    """Report shared memory between GPUs of a node with NVSwitch, or unlike hosts that use P2P."""
    members = [m for c in verdict.communicators for m in c.communicator.members]
    shared = [m for m in members if any(t.is_shared_memory for t in m.edges.counts)]
    hosts = {m.process.host for m in shared}
    direct = {m.process.host for m in members if any(_is_p2p(t.name) for t in m.edges.counts)}
    broken = [m for m in members if m.process.signs & {nccl_signs.NO_P2P, "P2P_DISABLED"}]
    if broken:
        summary = "P2P between GPUs of a node could not be enabled"
        yield _of_members("intra_node_degraded", summary, broken)
    elif switched := [
        m for m in shared if m.nvls_channels or nccl_signs.NVSWITCH in m.process.signs
    ]:
        forced = any(_p2p_disabled(m.process.environment) for m in switched)
        why = ": P2P is switched off (NCCL_P2P_DISABLE or NCCL_P2P_LEVEL)" if forced else ""
        summary = f"GPUs with NVSwitch between them talk through host memory (SHM){why}"
        yield _of_members("intra_node_degraded", summary, switched)
    elif shared and direct - hosts:
        summary = (
            f"GPUs of {', '.join(sorted(hosts)[:4])} talk through host memory (SHM), those of"
            f" {len(direct - hosts)} other hosts directly"
        )
        yield _of_members("intra_node_degraded", summary, shared)


def _p2p_disabled(environment: Mapping[str, str]) -> bool:
    disabled = environment.get("NCCL_P2P_DISABLE", "0") not in {"0", ""}
    return disabled or environment.get("NCCL_P2P_LEVEL", "") in {"0", "LOC"}


def _is_p2p(name: str) -> bool:
    return name.startswith("P2P/")


def _versions(facts: Facts) -> Iterator[Finding]:
    hosts: dict[str, set[str]] = defaultdict(set)
    for process in facts.processes.values():
        if process.version and process.host:
            hosts[process.version].add(process.host)
    if len(hosts) > 1:
        odd = min(hosts, key=lambda version: len(hosts[version]))
        summary = f"NCCL versions differ: {', '.join(sorted(hosts))}; {odd} is the rare one"
        yield _finding("version_differs", summary, (), hosts[odd])


def _odd_ones(
    communicator: Communicator,
    kind: Kind,
    what: str,
    value_of: Callable[[Member], str | int | None],
) -> Iterator[Finding]:
    """Yield the members whose value differs from that of most."""
    values = [(member, value_of(member)) for member in communicator.members]
    known = Counter(value for _, value in values if value not in {None, ""})
    if len(known) < 2:
        return
    usual = known.most_common(1)[0][0]
    odd = [member for member, value in values if value not in {None, "", usual}]
    seen = sorted({str(value_of(member)) for member in odd})
    summary = f"{ranks_named(m.rank for m in odd)}: {what} {', '.join(seen)}, most have {usual}"
    yield _of_members(kind, summary, odd, communicator.name)


def _networks(communicator: Communicator) -> Iterator[Finding]:
    yield from _odd_ones(communicator, "network_differs", "network", network_of)


def _channels(communicator: Communicator) -> Iterator[Finding]:
    yield from _odd_ones(communicator, "channels_differ", "channels", lambda m: m.coll_channels)


def _loose_channels(facts: Facts) -> Iterator[Finding]:
    """Compare processes whose communicators the log does not show; their groups are alike."""
    by_channels: dict[tuple[int, ...], set[str]] = defaultdict(set)
    counts: Counter[tuple[int, ...]] = Counter()
    for (host, _), numbers in facts.loose_channels.items():
        by_channels[tuple(sorted(numbers))].add(host)
        counts[tuple(sorted(numbers))] += 1
    if len(counts) < 2:
        return
    usual = counts.most_common(1)[0][0]
    odd = [numbers for numbers in sorted(counts) if numbers != usual]
    hosts = {host for numbers in odd for host in by_channels[numbers] if host}
    seen = ", ".join(_joined(numbers) for numbers in odd)
    summary = f"processes have {seen} channels, most have {_joined(usual)}"
    yield _finding("channels_differ", summary, (), hosts)


def _joined(numbers: tuple[int, ...]) -> str:
    return "/".join(map(str, numbers))


def _sizes(communicator: Communicator) -> Iterator[Finding]:
    yield from _odd_ones(communicator, "world_size_disagrees", "world size", lambda m: m.nranks)


def _duplicates(communicator: Communicator) -> Iterator[Finding]:
    by_rank: dict[int, set[tuple[str, int]]] = defaultdict(set)
    for member in communicator.members:
        by_rank[member.rank].add((member.process.host, member.process.pid))
    twice = [m for m in communicator.members if len(by_rank[m.rank]) > 1]
    if twice:
        summary = f"several processes claim to be {ranks_named(m.rank for m in twice)}"
        yield _of_members("duplicate_rank", summary, twice, communicator.name)


COMPARISONS = (_duplicates, _sizes, _networks, _channels)


def _init(communicator: Communicator) -> Iterator[Finding]:
    """Report an initialisation that did not finish by the end of the log, and who never began."""
    stuck = set(communicator.stuck_ranks)
    if not stuck:
        return
    members = [m for m in communicator.members if m.rank in stuck]
    summary = f"{ranks_named(stuck)} began to initialise and had not finished by the end of the log"
    yield _of_members("init_incomplete", summary, members, communicator.name)
    nranks = communicator.nranks or 0
    count = nranks - len(communicator.ranks)
    if not communicator.linked or communicator.complete_ranks or count <= 0:
        return
    absent = _absent(communicator.ranks, nranks)
    summary = (
        f"{count} of {nranks} ranks never began, as far as these logs show: {ranks_listed(absent)}"
    )
    yield _finding("missing_rank", summary, absent, communicator=communicator.name)


MAX_ABSENT = 1024
"""Missing ranks listed: a log may claim any world size."""


def _absent(present: Sequence[int], nranks: int) -> tuple[int, ...]:
    there = set(present)
    looked_at = range(min(nranks, len(there) + MAX_ABSENT))
    return tuple(rank for rank in looked_at if rank not in there)[:MAX_ABSENT]
