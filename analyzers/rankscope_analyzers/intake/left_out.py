"""Records of live ranks that are missing from agents' responses, and why.

Namespaces, pods and rings share the space of a response; and a rank whose clock is far behind its
node's has no records of the requested time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rankscope_analyzers.text.name_lists import ranks_named
from rankscope_analyzers.text.wording import age, clock

MEMBERS = ("job_id", "rank", "until_unix_seconds")
"""What an agent reports of a rank whose older records did not fit into a response."""

MOST_RANKS = 4096
"""Ranks that are taken from one agent: more than it reads rings of."""

LeftOut = Mapping[tuple[str, int], float]
"""When the newest step of these records began, by job and rank."""


def read(listed: Any) -> LeftOut:
    """Return the ranks that a response lists; older agents list none."""
    found: dict[tuple[str, int], float] = {}
    for one in listed[:MOST_RANKS] if isinstance(listed, list) else ():
        job, rank, until = map(one.get, MEMBERS) if isinstance(one, dict) else (None, None, None)
        if type(job) is str and type(rank) is int and type(until) is float and math.isfinite(until):
            found[job, rank] = max(until, found.get((job, rank), until))
    return found


def behind(ranks: Iterable[Mapping[str, Any]], job_id: str, present: Collection[Any]) -> list[str]:
    """Report which ranks of a job have no records because of their clocks.

    Args:
        ranks: as agents report theirs.
        job_id: the job.
        present: ranks of it that have records.
    """
    found = {}
    for rank in ranks:
        number, ahead = rank.get("rank"), rank.get("clock_ahead_seconds")
        mine = rank.get("job_id") == job_id and rank.get("alive") and number not in present
        if mine and type(number) is int and type(ahead) is float and -math.inf < ahead < 0.0:
            found[number] = -ahead
    if not found:
        return []
    longest = age(max(found.values()))
    whose = "its clock is" if len(found) == 1 else "their clocks are up to"
    return [
        f"{ranks_named(found)} {'has' if len(found) == 1 else 'have'} no records of this time:"
        f" {whose} {longest} behind the node's"
    ]


def notes(of_agents: Iterable[LeftOut], job_id: str | None) -> Mapping[str, Sequence[str]]:
    """Report by job whose older records are missing.

    Args:
        of_agents: what did not fit, of each agent.
        job_id: the requested job, None for all.
    """
    of_job: dict[str, dict[int, float]] = defaultdict(dict)
    for left_out in of_agents:
        for (job, rank), until in left_out.items():
            of_job[job][rank] = until
    alone = "" if job_id else "; rankscope diagnose --job asks for this job alone"
    return {
        job: (
            f"records of {ranks_named(ranks)} up to {clock(max(ranks.values()))} are missing:"
            " namespaces, pods and rings share the room of an agent's answer, and theirs is full"
            f"{alone}",
        )
        for job, ranks in of_job.items()
    }
