"""Which GPU a rank uses if its agent names none: that of its local rank, unless others use it.

An agent names none if there are fewer processes than GPUs, or if it is unknown how many there are:
the ranks of one of several Slurm jobs on a node may have any of its GPUs. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope_agent.contract.metrics import gpus, pods, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import RankLocation
from rankscope_analyzers.intake.observed import Observed, Series

READS: tuple[Metric, ...] = (
    gpus.GPU_INFO,
    pods.GPU_ALLOCATION_INFO,
    pods.RANK_STARTED,
    training.RANK_INFO,
    training.RANK_ALIVE,
    training.RANK_ENDED,
)

UUID_FORMS = ("GPU-", "MIG-")
"""How UUIDs of NVIDIA's GPUs and of parts of them begin. Some device plugins, and claims, give
names instead, which do not tell which GPU it is."""

RankOfJob = tuple[str, int]
"""The name of a job, and one of its ranks."""

Jobs = Mapping[str, Mapping[int, RankLocation]]
"""The ranks of jobs; those whose agents name their GPUs have UUIDs."""

_Period = tuple[float, float]
"""Begin and end as Unix times, as far as they were seen."""

_Place = tuple[str, str, str]
"""The name of a job, one of its ranks as in labels, and the node."""

ANY_TIME: _Period = (0.0, float("inf"))


@dataclass(frozen=True, slots=True)
class _Use:
    """A GPU that a container of a pod holds, or that a rank uses, and when.

    Args:
        pod: namespace/name, empty outside of pods.
        container: empty of a rank.
        rank: None of a container.
    """

    uuid: str
    period: _Period
    pod: str
    container: str = ""
    rank: RankOfJob | None = None

    def meets(self, other: _Use) -> bool:
        """Return True if the other one uses the same GPU at the same time."""
        apart = self.period[1] < other.period[0] or other.period[1] < self.period[0]
        return self.uuid == other.uuid and not apart


def assumed_gpus(observed: Observed, jobs: Jobs) -> Mapping[RankOfJob, str]:
    """Return the UUIDs of the GPUs that ranks use by their local rank.

    It is empty where the local rank does not tell, as another rank or a pod uses that GPU at the
    same time. Ranks whose agent names their GPU, or on nodes whose GPUs are unknown, are left out.
    """
    of_nodes, held = _gpus_of_nodes(observed), _held_by_pods(observed)
    found: dict[RankOfJob, str] = {}
    for job_id, ranks in jobs.items():
        for rank, one in ranks.items():
            if one.local_rank is not None and not one.uuid and one.node in of_nodes:
                uuid = _by_local_rank(one, of_nodes[one.node], held.get(one.node, ()))
                if uuid is not None:
                    found[job_id, rank] = uuid
    used = _used_by_ranks(observed, jobs, found) if found else {}
    for key in found:
        one = jobs[key[0]][key[1]]
        if _is_contested(key, one, used.get(one.node, ()), held.get(one.node, ())):
            found[key] = ""
    return found


def _by_local_rank(
    one: RankLocation, of_node: Mapping[int, str], held: Sequence[_Use]
) -> str | None:
    """Return the GPU of a local rank: among those of its pod if these are known, or of its node."""
    local = one.local_rank or 0
    own = _of_pod(one, held)
    if not own:
        return of_node.get(local)
    uuids = {use.uuid for use in own}
    here = [of_node[index] for index in sorted(of_node) if of_node[index] in uuids]
    known = len(here) == len(uuids) and len({use.container for use in own}) == 1
    return here[local] if known and local < len(here) else ""


def _of_pod(one: RankLocation, uses: Sequence[_Use]) -> Sequence[_Use]:
    return [use for use in uses if one.pod and use.pod == one.pod]


def _is_contested(
    key: RankOfJob, one: RankLocation, used: Sequence[_Use], held: Sequence[_Use]
) -> bool:
    """Return True if anything else uses the GPU that a rank is assumed to use.

    Args:
        key: the rank.
        one: where it runs.
        used: what ranks of its node use.
        held: what pods of its node hold.
    """
    if _of_pod(one, held):
        rivals = _of_pod(one, used)  # other pods may share its GPUs
    else:  # a pod without a name may be any of those that hold GPUs
        rivals = [*used, *(() if one.pod_uid and not one.pod else held)]
    mine = [use for use in used if use.rank == key]
    return any(use.meets(rival) for use in mine for rival in rivals if rival.rank != key)


def _gpus_of_nodes(observed: Observed) -> Mapping[str, Mapping[int, str]]:
    """Return the UUIDs of the GPUs of each node, by index."""
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for series in observed.of(gpus.GPU_INFO):
        index, uuid = series.labels.get("gpu", ""), series.labels.get("uuid", "")
        if uuid and index.isascii() and index.isdigit() and len(index) < 4:
            found[series.node][int(index)] = uuid
    return found


def _held_by_pods(observed: Observed) -> Mapping[str, Sequence[_Use]]:
    """Return which GPUs containers hold, by node."""
    found: dict[str, list[_Use]] = defaultdict(list)
    for series in observed.of(pods.GPU_ALLOCATION_INFO):
        labels = series.labels
        uuid = labels.get("uuid", "").partition("::")[0]
        if uuid.startswith(UUID_FORMS) and labels.get("pod_name"):
            pod = f"{labels.get('pod_namespace', '')}/{labels['pod_name']}"
            use = _Use(uuid, _seen(series), pod, labels.get("container_name", ""))
            found[series.node or labels.get("node", "")].append(use)
    return found


def _used_by_ranks(
    observed: Observed, jobs: Jobs, assumed: Mapping[RankOfJob, str]
) -> Mapping[str, Sequence[_Use]]:
    """Return which GPUs ranks use, or are assumed to use, by node."""
    periods = _periods(observed)
    found: dict[str, list[_Use]] = defaultdict(list)
    for job_id, ranks in jobs.items():
        for rank, one in ranks.items():
            uuid = one.uuid or assumed.get((job_id, rank), "")
            period = periods.get((job_id, str(rank), one.node), ANY_TIME)
            if uuid and period is not None:
                found[one.node].append(_Use(uuid, period, one.pod, rank=(job_id, rank)))
    return found


def _periods(observed: Observed) -> Mapping[_Place, _Period | None]:
    """Return when the processes of ranks were there, None of those that may have ended long ago.

    One whose start is unknown counts from when it was first seen, so that those that had ended by
    then are none that it shares a GPU with.
    """
    started = {_place(one): one.last for one in observed.of(pods.RANK_STARTED)}
    ended = {_place(one): one.last for one in observed.of(training.RANK_ENDED)}
    dead = {_place(one) for one in observed.of(training.RANK_ALIVE) if not one.last}
    found: dict[_Place, _Period | None] = {}
    for one in observed.of(training.RANK_INFO):
        place, (first, last) = _place(one), _seen(one)
        end = ended.get(place, first) if place in dead else last
        # An agent that was restarted shows the rings of the dead, and not when they died.
        unknown = place in dead and place not in started and place not in ended
        found[place] = None if unknown else (min(started.get(place, first), end), end)
    return found


def _seen(series: Series) -> _Period:
    return float(series.times[0]), float(series.times[-1])


def _place(series: Series) -> _Place:
    return series.labels.get("job_id", ""), series.labels.get("rank", ""), series.node
