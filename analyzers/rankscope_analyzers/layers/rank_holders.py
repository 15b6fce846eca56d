"""Which of several nodes that report the same rank has it now.

A job that is started again on other nodes, or on fewer, leaves its ended processes behind: their
agents report them for minutes, beside the agents of the nodes on which the ranks go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rankscope_agent.contract.metrics import pods, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.intake.observed import Observed, Series

READS: tuple[Metric, ...] = (
    training.RANK_ALIVE,
    training.RANK_ENDED,
    training.LAST_STEP_TIMESTAMP,
    pods.RANK_STARTED,
)

TOGETHER_SECONDS = 45.0
"""By how much pages of a job's nodes may be apart: the scrapes of a usual interval."""


def of_holders(
    observed: Observed, job_id: str, found: Mapping[int, Sequence[Series]]
) -> Mapping[int, Series]:
    """Return for each rank the series of the node that has it now.

    That is the node that reports still and on which the rank is alive; of several, the one on which
    it was started, ended a step or ended last.

    Args:
        observed: what was read.
        job_id: the job.
        found: series of one metric by rank, at least one each.
    """
    if all(len(several) == 1 for several in found.values()):
        return {rank: several[0] for rank, several in found.items()}
    newest = _newest(one for several in found.values() for one in several)
    alive = {_place(one) for one in observed.of(training.RANK_ALIVE, job_id=job_id) if one.last}
    seen = _last_seen(observed, job_id)

    def claim(one: Series) -> tuple[bool, bool, float]:
        return _reports(one, newest), _place(one) in alive, seen.get(_place(one), 0.0)

    return {rank: max(reversed(several), key=claim) for rank, several in found.items()}


def going_on(observed: Observed, job_id: str, found: Sequence[Series]) -> Iterator[Series]:
    """Yield the series of processes that have not ended, on nodes that report still.

    Those of one rank may be several: an earlier attempt that lives on is left in.

    Args:
        observed: what was read.
        job_id: the job.
        found: its series of one metric that has a rank.
    """
    newest = _newest(found)
    gone = {_place(one) for one in observed.of(training.RANK_ALIVE, job_id=job_id) if not one.last}
    for one in found:
        if _reports(one, newest) and _place(one) not in gone:
            yield one


def _newest(found: Iterable[Series]) -> float:
    return max((float(one.times[-1]) for one in found), default=0.0)


def _reports(series: Series, newest: float) -> bool:
    return bool(newest - series.times[-1] <= TOGETHER_SECONDS)


_Place = tuple[str, str]
"""A rank, as in its label, and a node."""


def _place(series: Series) -> _Place:
    return series.labels.get("rank", ""), series.node


def _last_seen(observed: Observed, job_id: str) -> Mapping[_Place, float]:
    """Return when ranks were last seen to do something on nodes, in Unix seconds."""
    seen: dict[_Place, float] = {}
    for metric in (pods.RANK_STARTED, training.LAST_STEP_TIMESTAMP, training.RANK_ENDED):
        for one in observed.of(metric, job_id=job_id):
            seen[_place(one)] = max(seen.get(_place(one), 0.0), one.last)
    return seen
