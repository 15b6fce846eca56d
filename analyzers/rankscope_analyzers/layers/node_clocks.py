"""How far apart the clocks of a job's nodes are, to tell which of their ranks did something first.

All ranks of a synchronous job end a step at the same moment, or nearly so if hosts run ahead of
their devices. Without such a step, or if some took longer for it, pages tell: each says when it was
made by its node's clock, and is a collection interval old at most. Clocks that are a minute off are
known (`intake.clock_skew`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from statistics import median, median_low

from rankscope_agent.contract.metrics import agent, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.intake.clock_skew import TOLERANCE_SECONDS
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.layers.rank_locations import by_rank
from rankscope_analyzers.steps.far_clocks import FAR_SECONDS, FAR_STEPS

READS: tuple[Metric, ...] = (
    training.LAST_STEP,
    training.LAST_STEP_TIMESTAMP,
    training.LAST_STEP_SECONDS,
    agent.SNAPSHOT_TIMESTAMP,
)

_ByNode = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class NodeClocks:
    """What is known of the clocks of a job's nodes.

    Args:
        ahead: seconds by which they are ahead of the others, for those that are certainly off.
        unsure_seconds: by how much the times of different nodes may still be apart.
    """

    ahead: Mapping[str, float]
    unsure_seconds: float

    def corrected(self, node: str, unix_seconds: float) -> float:
        """Return a time of a node by the clock of the others."""
        return unix_seconds - self.ahead.get(node, 0.0)


def node_clocks(observed: Observed, job_id: str, nodes: Set[str]) -> NodeClocks:
    """Return what is known of the clocks of some nodes of a job."""
    if len(nodes) < 2:
        return NodeClocks({}, 0.0)
    ends, lasted, usual = _step_ends(observed, job_id)
    if nodes <= ends.keys():
        # Of two clocks, the one that is behind is taken as right, as it is for records.
        middle = median_low(chain.from_iterable(ends[node] for node in nodes))
        by = {node: median(ends[node]) - middle for node in nodes}
        # Otherwise these are steps of different attempts.
        if max(map(abs, by.values())) <= TOLERANCE_SECONDS:
            far = max(FAR_SECONDS, FAR_STEPS * usual)
            ahead = {node: seconds for node, seconds in by.items() if abs(seconds) > far}
            # A node that took longer, as for a save, ended the step later by any clock.
            if not ahead or _spread(median(lasted[node]) for node in nodes) <= far:
                return NodeClocks(ahead, _spread(by[node] for node in nodes if node not in ahead))
    pages = [one for one in observed.of(agent.SNAPSHOT_TIMESTAMP) if one.node in nodes]
    return NodeClocks({}, _spread(one.last - float(one.times[-1]) for one in pages))


def _step_ends(observed: Observed, job_id: str) -> tuple[_ByNode, _ByNode, float]:
    """Return when one and the same step ended on the ranks of each node, and how long it took.

    That of a rank which ended one step less than the others is taken for as much later. The last
    number is how long steps usually take.
    """
    steps = by_rank(observed, training.LAST_STEP, job_id)
    lasted = by_rank(observed, training.LAST_STEP_SECONDS, job_id)
    ends = by_rank(observed, training.LAST_STEP_TIMESTAMP, job_id)
    known = ends.keys() & steps.keys() & lasted.keys()
    if not known:
        return {}, {}, 0.0
    usual = median_low(lasted[rank].last for rank in known)
    middle = median_low(steps[rank].last for rank in known)
    ended: dict[str, list[float]] = defaultdict(list)
    took: dict[str, list[float]] = defaultdict(list)
    for rank in known:
        fewer = middle - steps[rank].last
        if abs(fewer) <= FAR_STEPS:
            ended[ends[rank].node].append(ends[rank].last + fewer * usual)
            took[ends[rank].node].append(lasted[rank].last)
    return ended, took, usual


def _spread(values: Iterable[float]) -> float:
    several = list(values)
    return max(several) - min(several) if several else 0.0
