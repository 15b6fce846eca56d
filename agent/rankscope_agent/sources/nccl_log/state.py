"""Serialises the facts of NCCL logs as JSON and reads them back: pure.

It is the agent's own file and has a digest, so its structure is trusted; a state of another version
is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankscope_agent.contract.nccl.facts import (
    Edges,
    Facts,
    Member,
    Process,
    Transport,
    WarningCount,
)
from rankscope_agent.contract.nccl.watchdog import Culprit, GroupState, Timeout
from rankscope_agent.sources.sealed_state import MALFORMED

VERSION = 3


class StateError(Exception):
    """The text is not a state of this version."""


def to_json(facts: Facts) -> dict[str, Any]:
    """Return facts, whose connections must have been counted, as values for JSON."""
    dog = facts.watchdog
    return {
        "version": VERSION,
        "processes": [_process(process) for process in facts.processes.values()],
        "members": [_member(member) for member in facts.members.values()],
        "past_members": [_member(member) for member in facts.past_members],
        "loose": [
            [*key, [_edges(edges) for edges in several if edges.counts or edges.ring_size]]
            for key, several in facts.loose_edges.items()
        ],
        "warnings": [[code, w.count, w.example] for code, w in facts.warnings.items()],
        "ib_errors": [[*key, count] for key, count in facts.ib_errors.items()],
        "ranks": [sorted(facts.tagged_ranks), sorted(facts.comm_ranks), facts.largest_comm],
        "counts": [facts.version, facts.unparsed, facts.beyond_limits],
        "said": [facts.world_size, facts.group_size, facts.informed],
        "said_by_others": [facts.one_host, facts.stated_version],
        "headless": [[t.name, t.gdr, t.direction, n] for t, n in facts.headless.items()],
        "loose_channels": [[*key, sorted(n)] for key, n in facts.loose_channels.items()],
        "timeouts": [
            [*key, t.elements_in, t.elements_out, t.timeout_ms, t.ran_ms]
            for key, t in dog.timeouts.items()
        ],
        "states": [[s.rank, s.group, s.enqueued, s.completed] for s in dog.states.values()],
        "culprits": [[c.rank, c.finished, c.missing] for c in dog.culprits.values()],
        "watchdogs": [sorted(dog.signalled_by), sorted(dog.ranks)],
        "earlier_timeouts": dog.earlier,
    }


def _process(process: Process) -> list[Any]:
    return [
        process.host,
        process.pid,
        process.network,
        process.version,
        sorted(process.signs),
        process.environment,
        sorted(process.error_transports),
        process.bootstrap_seconds,
    ]


def _member(member: Member) -> list[Any]:
    return [
        member.process.host,
        member.process.pid,
        [member.pointer, member.rank, member.nranks, member.group, member.linked],
        [member.nodes, member.mnnvl, member.started, member.complete, member.network],
        [
            member.coll_channels,
            member.nvls_channels,
            member.gpu,
            member.init_seconds,
            member.one_process,
        ],
        _edges(member.edges),
    ]


def _edges(edges: Edges) -> list[Any]:
    return [
        [[t.name, t.gdr, t.direction, count] for t, count in edges.counts.items()],
        [[t.name, t.gdr, t.direction, sorted(codes)] for t, codes in edges.pairs.items()],
        sorted(edges.owners),
        edges.highest_rank,
        edges.ring_size,
    ]


def from_json(state: Mapping[str, Any]) -> Facts:
    """Return the facts written by `to_json`.

    Raises:
        StateError: they were not written by it.
    """
    if state.get("version") != VERSION:
        raise StateError(f"version {state.get('version')!r}, expected {VERSION}")
    try:
        return _facts(state)
    except MALFORMED as error:
        raise StateError(f"is damaged: {error!r}") from error


def _facts(state: Mapping[str, Any]) -> Facts:
    facts = Facts()
    for values in state["processes"]:
        process = _read_process(values)
        facts.processes[process.host, process.pid] = process
        facts.settings += len(process.environment)
    for values in state["members"]:
        member = _read_member(facts, values)
        facts.members[member.process.host, member.process.pid, member.pointer] = member
    facts.past_members = [_read_member(facts, values) for values in state["past_members"]]
    for host, pid, several in state["loose"]:
        facts.loose_edges[host, pid] = [_read_edges(edges) for edges in several]
    facts.warnings = {code: WarningCount(n, example) for code, n, example in state["warnings"]}
    facts.ib_errors = {(device, status): n for device, status, n in state["ib_errors"]}
    tagged, in_comms, facts.largest_comm = state["ranks"]
    facts.tagged_ranks, facts.comm_ranks = set(tagged), set(in_comms)
    facts.version, facts.unparsed, facts.beyond_limits = state["counts"]
    facts.world_size, facts.group_size, facts.informed = state["said"]
    # States of earlier versions have neither.
    facts.one_host, facts.stated_version = state.get("said_by_others", (False, ""))
    facts.headless = {Transport(name, gdr, way): n for name, gdr, way, n in state["headless"]}
    facts.loose_channels = {(host, pid): set(n) for host, pid, n in state["loose_channels"]}
    _read_watchdog(facts, state)
    return facts


def _read_watchdog(facts: Facts, state: Mapping[str, Any]) -> None:
    dog = facts.watchdog
    for values in state["timeouts"]:
        timeout = Timeout(*values)
        key = (timeout.rank, timeout.group, timeout.sequence, timeout.operation)
        dog.timeouts[key] = timeout
        dog.recognise(key)
    for values in state["states"]:
        group_state = GroupState(*values)
        dog.states[group_state.rank, group_state.group] = group_state
    dog.culprits = {values[0]: Culprit(*values) for values in state["culprits"]}
    dog.earlier = dict(state["earlier_timeouts"])
    signalled_by, *_, ranks = state["watchdogs"]
    dog.signalled_by, dog.ranks = set(signalled_by), set(ranks)


def _read_process(values: list[Any]) -> Process:
    host, pid, network, version, signs, environment, errors, bootstrap = values
    return Process(
        host, pid, network, version, set(signs), dict(environment), set(errors), bootstrap
    )


def _read_member(facts: Facts, values: list[Any]) -> Member:
    host, pid, who, state, shape, edges = values
    process = facts.processes.setdefault((host, pid), Process(host, pid))
    pointer, rank, nranks, group, linked = who
    nodes, mnnvl, started, complete, network = state
    coll_channels, nvls_channels, gpu, init_seconds, one_process = shape
    return Member(
        process=process,
        pointer=pointer,
        rank=rank,
        nranks=nranks,
        group=group,
        linked=linked,
        nodes=nodes,
        mnnvl=mnnvl,
        started=started,
        complete=complete,
        network=network,
        coll_channels=coll_channels,
        nvls_channels=nvls_channels,
        gpu=gpu,
        init_seconds=init_seconds,
        one_process=one_process,
        edges=_read_edges(edges),
    )


def _read_edges(values: list[Any]) -> Edges:
    counts, pairs, owners, highest, ring_size = values
    return Edges(
        set(),
        {Transport(name, gdr, direction): n for name, gdr, direction, n in counts},
        {Transport(name, gdr, direction): set(codes) for name, gdr, direction, codes in pairs},
        set(owners),
        highest,
        ring_size,
    )
