"""How many new records of each job are judged at a look: no job delays the verdicts on others.

A pod can write steps faster than any model trains, and name its job as it likes. Namespaces share
the time, and so do the jobs of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rankscope_agent.contract.fair_shares import allot_to_holders

JUDGING_SHARE = 0.5
"""Fraction of the time that judging new records may take."""

LONGEST_SECONDS = 20.0
"""Limit of the time that counts between two looks: what piled up during a longer one is not judged
at once."""

NEW_SECONDS = 1.5
"""CPU seconds that jobs that nobody has followed yet may take at a look: a job that has just begun
has few records, and verdicts on others would be late."""

START_SECONDS = 30.0
"""The same at the watch's start: while no job has a verdict, or many agents have not been queried
yet."""

STEP_SECONDS = 2.5e-4
"""Minimum CPU seconds of judging a step, of however few ranks: 575 steps of eight ranks took 0.15
s, and of ranks that never do the same step each record is a step."""

PACED_SECONDS = 1.0
"""Judging that took less shows nothing about the share of a core available for it."""

TICK_SECONDS = 1e-6
"""The resource that is shared out."""

FEW_RECORDS = 256
"""With fewer records, the fixed cost of a look at any job dominates; nothing can be learned from
these."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """New records of a job: how many, and of how many steps."""

    records: int
    steps: int


class JudgingShares:
    """What judging the records of each job has cost, and what it may cost next time."""

    def __init__(self) -> None:
        self._costs: dict[str, float] = {}
        self._cpu_seconds = self._wall_seconds = 0.0

    def note(self, name: str, records: int, cpu_seconds: float, wall_seconds: float = 0.0) -> None:
        """Record the cost of judging new records of a job."""
        if records >= FEW_RECORDS:
            self._costs[name] = cpu_seconds / records
        self._cpu_seconds += cpu_seconds
        self._wall_seconds += wall_seconds

    def keep(self, names: Mapping[str, object]) -> None:
        """Forget all jobs but these."""
        self._costs = {name: cost for name, cost in self._costs.items() if name in names}

    def too_many(
        self,
        followed: Mapping[str, Fresh],
        new: Mapping[str, Fresh],
        seconds: float,
        *,
        starting: bool = False,
    ) -> Mapping[str, Fresh]:
        """Return what may be judged of each job that has more.

        Args:
            followed: new records of jobs that were judged before.
            new: those of all others.
            seconds: since the last look.
            starting: True if many agents report all the time that they keep for the first time:
                jobs that are new because of that are not cut short, as nobody could have queried
                them before.
        """
        pace = self._pace()
        available = JUDGING_SHARE * min(seconds, LONGEST_SECONDS)
        of_new = NEW_SECONDS if followed and not starting else START_SECONDS
        return {**self._cut(followed, available * pace), **self._cut(new, of_new * pace)}

    def _pace(self) -> float:
        """Return the share of a core that judging got since the last call."""
        cpu, wall = self._cpu_seconds, self._wall_seconds
        self._cpu_seconds = self._wall_seconds = 0.0
        return min(1.0, cpu / wall) if wall > PACED_SECONDS else 1.0

    def _cut(self, fresh: Mapping[str, Fresh], available: float) -> Mapping[str, Fresh]:
        wanted = {
            (_namespace(name), name): round(self._expected(name, one) / TICK_SECONDS)
            for name, one in fresh.items()
        }
        shares = allot_to_holders(wanted, round(available / TICK_SECONDS))
        parts = {
            key[1]: share / wanted[key] for key, share in shares.items() if share < wanted[key]
        }
        return {
            name: Fresh(int(part * fresh[name].records), int(part * fresh[name].steps))
            for name, part in parts.items()
        }

    def _expected(self, name: str, fresh: Fresh) -> float:
        """Return the expected CPU seconds of judging: the cost of a job's records may vary."""
        return max(fresh.records * self._cost(name), fresh.steps * STEP_SECONDS)

    def _cost(self, name: str) -> float:
        """Return CPU seconds per record; a new job's are the highest of its namespace."""
        known = self._costs.get(name)
        if known is not None:
            return known
        namespace = _namespace(name)
        others = (cost for one, cost in self._costs.items() if _namespace(one) == namespace)
        return max(others, default=0.0)


def _namespace(name: str) -> str:
    return name.partition("/")[0]
