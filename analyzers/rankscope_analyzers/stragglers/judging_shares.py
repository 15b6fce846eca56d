"""How many new records of each job are judged at a look: no job delays the verdicts on others.

A pod can write steps faster than any model trains, and name its job as it likes. Namespaces share
the time, and so do the jobs of each.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankscope_agent.contract.fair_shares import allot_to_holders

JUDGING_SHARE = 0.5
"""Part of the time that judging new records may take."""

LONGEST_SECONDS = 30.0
"""Time that counts between two looks: what piled up during a longer one is not judged at once."""

TICK_SECONDS = 1e-6
"""What is shared out."""

FEW_RECORDS = 256
"""Fewer take the time that a look at any job takes; nothing is to be learned from these."""


class JudgingShares:
    """What judging the records of each job has cost, and what it may cost next time."""

    def __init__(self) -> None:
        self._costs: dict[str, float] = {}

    def note(self, name: str, records: int, cpu_seconds: float) -> None:
        """Note what it took to judge new records of a job."""
        if records >= FEW_RECORDS:
            self._costs[name] = cpu_seconds / records

    def keep(self, names: Mapping[str, object]) -> None:
        """Forget all jobs but these."""
        self._costs = {name: cost for name, cost in self._costs.items() if name in names}

    def too_many(self, fresh: Mapping[str, int], seconds: float) -> Mapping[str, int]:
        """Return how many records may be judged of each job that has more.

        Args:
            fresh: new records by job.
            seconds: since the last look.
        """
        wanted = {
            (_namespace(name), name): round(count * self._cost(name) / TICK_SECONDS)
            for name, count in fresh.items()
        }
        available = JUDGING_SHARE * min(seconds, LONGEST_SECONDS)
        return {
            name: int(share * TICK_SECONDS / self._cost(name))
            for (namespace, name), share in allot_to_holders(
                wanted, round(available / TICK_SECONDS)
            ).items()
            if share < wanted[namespace, name]
        }

    def _cost(self, name: str) -> float:
        """Return CPU seconds per record, of a new job what the worst of its namespace needs."""
        known = self._costs.get(name)
        if known is not None:
            return known
        namespace = _namespace(name)
        others = (cost for one, cost in self._costs.items() if _namespace(one) == namespace)
        return max(others, default=0.0)


def _namespace(name: str) -> str:
    return name.partition("/")[0]
