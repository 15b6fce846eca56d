"""Show what NCCL logs prove: as text for people and as JSON for programs.

The JSON's members are part of the product's interface (docs/nccl_logs.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rankscope_agent.contract.nccl import verdict as nccl_verdict
from rankscope_agent.contract.nccl.facts import Facts, Transport
from rankscope_agent.contract.nccl.verdict import CommunicatorVerdict, JobVerdict
from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.logs.watchdog_suspects import Suspect, job_size, victims
from rankscope_analyzers.text import runbooks
from rankscope_analyzers.text.name_lists import listed, ranks_listed, ranks_named
from rankscope_analyzers.text.sanitize import visible

MAX_COMMUNICATORS = 1000
"""Communicators written out; a job of 8,192 ranks with three kinds of groups has some 2,000, of
which the largest are sufficient."""

TEXT_COMMUNICATORS = 12
"""Communicators in the text; --json has them all."""

MAX_LISTED = 1 << 17
"""Ranks written out individually: eight times the ranks of the largest jobs known."""

MAX_SETTINGS, MAX_VALUES = 256, 8
"""NCCL_... variables written out, and values of each: NCCL knows some 250."""

REASON_SENTENCES = {
    nccl_verdict.OTHER_NETWORK: "data between nodes goes over {transports}",
    nccl_verdict.SINGLE_RANK: "there is a single rank and nothing to talk to",
    nccl_verdict.SINGLE_NODE: "all ranks are on one node (or NVLink domain): no network is needed",
    nccl_verdict.LOCAL_ONLY: "all ranks are connected within nodes: no network is needed",
    nccl_verdict.SOCKET_SELECTED: (
        "several nodes and network Socket: TCP is probable, but no connection is in this log yet"
    ),
    nccl_verdict.NO_CONNECTION: "no connection is in this log: the network in use is unknown",
    nccl_verdict.NO_NETWORK_LINE: (
        "nothing in this log shows the network (NCCL_DEBUG=INFO prints it, WARN does not)"
    ),
}

NOT_IN_EXCERPT = "the lines about the network are not in this log"
"""For a log of the INFO level, which has such lines elsewhere."""


def as_object(facts: Facts, verdict: JobVerdict, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the verdict as JSON-ready values, null for what the log does not show."""
    network = verdict.network
    largest = sorted(verdict.communicators, key=lambda c: -(c.communicator.nranks or 0))
    return {
        "nccl_version": verdict.nccl_version,
        "nranks": verdict.nranks,
        "nranks_from": verdict.nranks_from,
        "world_size": verdict.world_size,
        "ranks_seen": list(verdict.ranks_seen[:MAX_LISTED]),
        "net_selected": verdict.net_selected,
        "inter_node_transports": list(network.transports),
        "gdr": network.gdr,
        "gdr_missing_connections": network.gdr_missing,
        "socket_fallback": network.socket_fallback,
        "reason": network.reason,
        "connections": _connections(verdict.connections),
        "coll_channels": _channels(facts, verdict),
        "init_complete_ranks": list(verdict.init_complete_ranks[:MAX_LISTED]),
        "warnings": _warnings(facts),
        "environment": {name: sorted(values) for name, values in environment(facts).items()},
        "communicators": [_communicator(c) for c in largest[:MAX_COMMUNICATORS]],
        "communicators_left_out": max(0, len(largest) - MAX_COMMUNICATORS),
        "findings": [_finding(found) for found in findings],
        "verdict": sentence(facts, verdict, findings),
        "unparsed_lines": facts.unparsed,
        "beyond_limits": facts.beyond_limits,
    }


def environment(facts: Facts) -> dict[str, set[str]]:
    """Return the values of each NCCL_... variable: several if processes differ."""
    found: dict[str, set[str]] = {}
    for process in facts.processes.values():
        for name, value in process.environment.items():
            if name in found or len(found) < MAX_SETTINGS:
                values = found.setdefault(name, set())
                if len(values) < MAX_VALUES:
                    values.add(value)
    return dict(sorted(found.items()))


def _warnings(facts: Facts) -> list[dict[str, Any]]:
    return [
        {"code": code, "count": warning.count, "example": warning.example}
        for code, warning in facts.warnings.items()
    ]


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "summary": found.summary,
        "communicator": found.source or None,
        "ranks": list(found.where.ranks[:MAX_LISTED]),
        "hosts": list(found.where.nodes),
        "runbook": runbooks.path(found.runbook),
    }


def _communicator(judged: CommunicatorVerdict) -> dict[str, Any]:
    communicator, network = judged.communicator, judged.network
    return {
        "id": communicator.name,
        "id_is_certain": communicator.linked,
        "nranks": communicator.nranks,
        "nodes": communicator.nodes_seen,
        "ranks_seen": list(communicator.ranks),
        "init_complete_ranks": list(communicator.complete_ranks),
        "hosts": list(communicator.hosts),
        "networks": list(communicator.networks),
        "connections": _connections(communicator.edges),
        "coll_channels": list(communicator.channels),
        "socket_fallback": network.socket_fallback,
        "reason": network.reason,
        "gdr": network.gdr,
        "init_seconds": max(
            (m.init_seconds.get("total", 0.0) for m in communicator.members), default=0.0
        )
        or None,
    }


def _connections(counts: Mapping[Transport, int]) -> dict[str, int]:
    return {_written(transport): count for transport, count in sorted_edges(counts.items())}


def _channels(facts: Facts, verdict: JobVerdict) -> list[int]:
    """Return every number of channels that is printed, of known communicators or not."""
    known = (c.communicator.channels for c in verdict.communicators)
    return sorted({n for several in (*known, *facts.loose_channels.values()) for n in several})


def _written(transport: Transport) -> str:
    side = f" {transport.direction}" if transport.direction else ""
    return f"{transport.name}{'/GDRDMA' if transport.gdr else ''}{side}"


def sentence(facts: Facts, verdict: JobVerdict, findings: Sequence[Finding]) -> str:
    """Return the conclusion: what is wrong, else what carries the data."""
    if findings:
        more = f" (and {len(findings) - 1} more findings)" if len(findings) > 1 else ""
        return f"{findings[0].summary}{more}"
    network = verdict.network
    carried = REASON_SENTENCES[network.reason].format(transports=", ".join(network.transports))
    if network.reason == nccl_verdict.NO_NETWORK_LINE and facts.informed:
        carried = NOT_IN_EXCERPT
    if network.gdr is not None and network.socket_fallback is False:
        carried += " with GPUDirect RDMA" if network.gdr else " without GPUDirect RDMA"
    warning = next(iter(facts.warnings), None)
    if warning is not None:
        return f"{warning} came first of {len(facts.warnings)} kinds of warnings; {carried}"
    return carried


def lines(facts: Facts, verdict: JobVerdict, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the report for people."""
    return map(visible, _lines(facts, verdict, findings))


def _lines(facts: Facts, verdict: JobVerdict, findings: Sequence[Finding]) -> Iterator[str]:
    yield f"verdict: {sentence(facts, verdict, findings)}"
    yield from _overview(verdict)
    for found in findings:
        yield f"finding: {found.kind}: {found.summary}; see {runbooks.command(found.runbook)}"
    for code, warning in facts.warnings.items():
        yield f"warning: {warning.count}x {code}: {warning.example}"
    settings = [f"{name}={' or '.join(sorted(v))}" for name, v in environment(facts).items()]
    if settings:
        yield f"settings: {', '.join(settings)}"
    largest = sorted(verdict.communicators, key=lambda c: -(c.communicator.nranks or 0))
    for judged in largest[:TEXT_COMMUNICATORS]:
        yield _communicator_line(judged)
    if len(largest) > TEXT_COMMUNICATORS:
        yield f"communicators: {len(largest) - TEXT_COMMUNICATORS} more in --json"
    if facts.unparsed or facts.beyond_limits:
        yield f"not read: {facts.unparsed} garbled records, {facts.beyond_limits} beyond limits"


def _overview(verdict: JobVerdict) -> Iterator[str]:
    network = verdict.network
    yield f"NCCL {verdict.nccl_version or 'of unknown version'}, network selected: " + (
        verdict.net_selected or "not printed"
    )
    yield (
        f"ranks: {verdict.nranks or 'unknown'} {NRANKS_FROM[verdict.nranks_from]}, seen:"
        f" {ranks_listed(verdict.ranks_seen) or 'none'}, initialised:"
        f" {ranks_listed(verdict.init_complete_ranks) or 'none'}"
    )
    used = ", ".join(network.transports) or "none seen"
    yield (
        f"between nodes: {used}; socket fallback: {_answer(network.socket_fallback)}"
        f" ({network.reason}); GPUDirect RDMA: {_answer(network.gdr)}"
    )


NRANKS_FROM = {
    nccl_verdict.COMMUNICATOR: "in the largest communicator",
    nccl_verdict.RING: "in the largest ring",
    nccl_verdict.OTHERS: "in the job by its launcher, framework or RAS",
    None: "in the largest communicator",
}
"""Sources of the number of ranks."""


def _answer(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "unknown"}[value]


def _communicator_line(judged: CommunicatorVerdict) -> str:
    communicator = judged.communicator
    used = ", ".join(f"{n}x {_written(t)}" for t, n in sorted_edges(communicator.edges.items()))
    channels = "/".join(map(str, communicator.channels)) or "unknown"
    return (
        f"communicator {communicator.name}: {communicator.nranks} ranks,"
        f" {communicator.nodes or 'unknown'} nodes, {channels} channels, initialised"
        f" {ranks_listed(communicator.complete_ranks) or 'none'}; {used or 'no connections seen'}"
    )


def sorted_edges(edges: Iterable[tuple[Transport, int]]) -> list[tuple[Transport, int]]:
    """Return connections, the most frequent first."""
    return sorted(edges, key=lambda pair: (-pair[1], _written(pair[0])))


def suspects_object(facts: Facts, found: Sequence[Suspect]) -> dict[str, Any]:
    """Return what the watchdogs wrote as JSON-ready values."""
    watchdog = facts.watchdog
    return {
        "suspects": [{"rank": s.rank, "test": s.test, "why": s.why} for s in found],
        "timeouts": [
            {
                "rank": t.rank,
                "group": t.group or None,
                "sequence": t.sequence,
                "operation": t.operation,
                "elements_in": t.elements_in,
                "timeout_ms": t.timeout_ms,
                "ran_ms": t.ran_ms,
            }
            for t in watchdog.timeouts.values()
        ],
        "victims": sorted(victims(facts)),
        "gave_up_first": sorted(watchdog.signalled_by),
        "nranks": job_size(facts) or None,
        "warnings": _warnings(facts),
        "verdict": suspects_sentence(facts, found),
    }


def suspects_sentence(facts: Facts, found: Sequence[Suspect]) -> str:
    """Return who holds the job up, or why that is unknown."""
    if found:
        return f"rank {found[0].rank} is the first suspect: {found[0].why}"
    if facts.watchdog.timeouts:
        return (
            "collectives timed out, and nothing in these logs shows who did not join;"
            " read the logs of all ranks together"
        )
    return "no collective timeout in these logs"


def suspects_lines(facts: Facts, found: Sequence[Suspect]) -> Iterator[str]:
    """Yield the report on collective timeouts for people."""
    return map(visible, _suspects_lines(facts, found))


def _suspects_lines(facts: Facts, found: Sequence[Suspect]) -> Iterator[str]:
    yield f"verdict: {suspects_sentence(facts, found)}"
    ranks = sorted({t.rank for t in facts.watchdog.timeouts.values() if t.rank is not None})
    operations = sorted({f"{t.operation} #{t.sequence}" for t in facts.watchdog.timeouts.values()})
    if operations:
        who = ranks_named(ranks) if ranks else "unknown ranks"
        yield f"timed out: {listed(operations)} on {who}"
    if facts.watchdog.signalled_by:
        first = ranks_named(sorted(facts.watchdog.signalled_by))
        yield f"gave up first, as it waited for longest: {first}"
    for suspect in found:
        yield f"suspect: rank {suspect.rank}: {suspect.why}"
    for code, warning in facts.warnings.items():
        yield f"warning: {warning.count}x {code}: {warning.example}"
