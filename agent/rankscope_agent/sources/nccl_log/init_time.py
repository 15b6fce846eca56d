"""How long NCCL took to create the communicators of a pod's newest processes: pure.

Source: `Init timings` of NCCL 2.22.3 and newer (src/init.cc), one line for each communicator.
"""

from __future__ import annotations

from collections import defaultdict

from rankscope_agent.contract.nccl.facts import Facts

_Key = tuple[str, int]
"""A process: its host, and its PID there."""


def init_seconds(facts: Facts) -> float | None:
    """Return the time of the process that took longest; None if no log shows one.

    Of several processes of one rank of the largest communicator, as a launcher starts them one
    after another, the last one counts.
    """
    members = list(facts.all_members())
    largest = max((member.nranks or 0 for member in members), default=0)
    order = {key: number for number, key in enumerate(facts.processes)}
    newest: dict[tuple[str, int], _Key] = {}
    took: defaultdict[_Key, float] = defaultdict(float)
    for member in members:
        process = (member.process.host, member.process.pid)
        if "total" in member.init_seconds:
            took[process] += member.init_seconds["total"]
        if member.nranks == largest:
            place = (member.process.host, member.rank)
            if order.get(process, -1) >= order.get(newest.get(place, process), -1):
                newest[place] = process
    return max((took[process] for process in newest.values() if process in took), default=None)
