"""One job as seen by the layers: where its ranks run, and how series refer to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rankscope_agent.contract.stalls import RankStall
from rankscope_analyzers.findings.finding import RankLocation, Where
from rankscope_analyzers.hangs.threshold import HANG_AFTER_SECONDS
from rankscope_analyzers.intake.observed import Series
from rankscope_analyzers.layers.other_periods import OtherPeriods
from rankscope_analyzers.layers.pace import OpenSpan, Pace


@dataclass(frozen=True, slots=True)
class JobView:
    """One job.

    Args:
        locations: where each rank runs, by rank.
        on_node: the same by node.
        nodes: the nodes that it runs on.
        began_unix_seconds: start of the first step that was read, None without any.
        ended_step_unix_seconds: end of the last step that was read.
        now_unix_seconds: when the report is made, None if the newest series are as of now.
        pace: how long its steps take by their records, None without any.
        first_step_seconds: how long its earlier first steps took, None if unknown.
        hang_after_seconds: least time without a step after which it is called hung.
        open_spans: checkpoints and the like that its ranks are in, if probes mark them.
        stalls: the stacks and collectives of ranks that end no steps, by rank.
        others: when other jobs ran on its nodes outside of pods.
    """

    job_id: str
    locations: Mapping[int, RankLocation]
    on_node: Mapping[str, Sequence[RankLocation]]
    nodes: frozenset[str]
    began_unix_seconds: float | None = None
    ended_step_unix_seconds: float | None = None
    now_unix_seconds: float | None = None
    pace: Pace | None = None
    first_step_seconds: float | None = None
    hang_after_seconds: float = HANG_AFTER_SECONDS
    open_spans: Sequence[OpenSpan] = ()
    stalls: Mapping[int, RankStall] = field(default_factory=dict)
    others: OtherPeriods = field(default_factory=OtherPeriods)

    def of_gpu(self, series: Series) -> Where | None:
        """Return the ranks whose GPU a series is about, None if no rank of the job can hold it."""
        labels = series.labels
        return self.of_gpus(series.node, (labels.get("uuid", ""),), (labels.get("gpu", ""),))

    def of_gpus(self, node: str, uuids: Sequence[str], gpus: Sequence[str]) -> Where | None:
        """Return the ranks that hold one of these GPUs of a node, None if none of the job can."""
        here = self.on_node.get(node, ())
        ranks = [
            location.rank
            for location in here
            if (
                location.whole_uuid in uuids
                if location.uuid and any(uuids)
                else location.gpu and location.gpu in gpus
            )
        ]
        if not ranks and all(location.gpu_known for location in here):
            return None
        return Where(
            nodes=(node,),
            ranks=tuple(sorted(ranks)),
            uuids=tuple(uuid for uuid in uuids if uuid),
            gpus=tuple(gpu for gpu in gpus if gpu),
        )

    def of_pod(self, series: Series, at: float | None = None) -> Where | None:
        """Return the ranks of the pod that a series is about, by its name or UID.

        Args:
            series: the series.
            at: Unix time of what it shows, None if it is unknown.
        """
        labels = series.labels
        name = f"{labels.get('pod_namespace', '')}/{labels.get('pod_name', '')}"
        uid = labels.get("pod_uid", "")
        here = self.on_node.get(series.node, ())
        ranks = [
            location.rank
            for location in here
            if (uid and location.pod_uid == uid) or location.pod == name
        ]
        named = (
            bool(uid) or name != "/" or any(location.pod or location.pod_uid for location in here)
        )
        # Outside of pods neither ranks nor logs carry names: only the node links them, if the job
        # was alone there.
        if not ranks and (named or not here or self.others.may_have(series.node, at)):
            return None
        return Where(nodes=(series.node,), ranks=tuple(sorted(ranks)))

    def of_node(self, series: Series) -> Where | None:
        """Return the node of a series if the job runs there."""
        return Where(nodes=(series.node,)) if series.node in self.on_node else None


def job_view(
    job_id: str, locations: Mapping[int, RankLocation], began_unix_seconds: float | None = None
) -> JobView:
    """Return the view of a job whose ranks run at these locations."""
    on_node: dict[str, list[RankLocation]] = defaultdict(list)
    for location in locations.values():
        on_node[location.node].append(location)
    return JobView(job_id, locations, on_node, frozenset(on_node), began_unix_seconds)
