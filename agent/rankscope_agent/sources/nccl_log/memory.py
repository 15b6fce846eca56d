"""Estimates the memory used by the facts of a pod's logs: pure."""

from __future__ import annotations

from rankscope_agent.contract.nccl.facts import Edges, Facts

# Bytes for each, as measured by tracemalloc on CPython 3.11, rounded up for the longest texts that
# are kept.
THREAD_BYTES = 1200
PROCESS_BYTES = 1200
SETTING_BYTES = 400
MEMBER_BYTES = 1800
PAIR_BYTES = 120
TIMEOUT_BYTES = 400
REPEATED_BYTES = 300
WARNING_BYTES = 1000
RANK_BYTES = 64


def estimated_bytes(facts: Facts, threads: int) -> int:
    """Return the estimated bytes of facts and of the threads that a parser knows."""
    loose = [edges for several in facts.loose_edges.values() for edges in several]
    pairs = sum(_pairs(edges) for edges in (*(m.edges for m in facts.all_members()), *loose))
    return counted_bytes(facts, threads) + pairs * PAIR_BYTES


def counted_bytes(facts: Facts, threads: int) -> int:
    """Return the part of `estimated_bytes` that is known at once: all but connections."""
    dog = facts.watchdog
    return (
        threads * THREAD_BYTES
        + len(facts.processes) * PROCESS_BYTES
        + facts.settings * SETTING_BYTES
        + (len(facts.members) + len(facts.past_members)) * MEMBER_BYTES
        + (len(dog.timeouts) + len(dog.states) + len(dog.culprits)) * TIMEOUT_BYTES
        + (len(dog.repeated) + len(dog.of_groups) + len(dog.ungrouped)) * REPEATED_BYTES
        + (len(facts.warnings) + len(facts.ib_errors)) * WARNING_BYTES
        + (len(facts.comm_ranks) + len(facts.tagged_ranks)) * RANK_BYTES
        + sum(map(len, (dog.ranks, dog.signalled_by, dog.absent, dog.stuck))) * RANK_BYTES
    )


def _pairs(edges: Edges) -> int:
    """Return the number of distinct connections, plus one per transport."""
    return sum(len(codes) + 1 for codes in edges.pairs.values())
