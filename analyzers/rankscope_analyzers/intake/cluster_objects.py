"""Follows all objects of the cluster that describe jobs: each kind separately."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rankscope_analyzers.intake.kubernetes_api import Api
from rankscope_analyzers.intake.object_watch import Condition, Follower, Gone, Resource
from rankscope_analyzers.workloads import kinds, nodes, pods
from rankscope_analyzers.workloads.kinds import CLASS_LABELS, KINDS, Kind
from rankscope_analyzers.workloads.nodes import NodeEvent, NodeFacts, with_events
from rankscope_analyzers.workloads.pods import PodFacts
from rankscope_analyzers.workloads.quotas import QUOTAS, Quota
from rankscope_analyzers.workloads.state import WorkloadState


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What is known of a cluster at one moment.

    Args:
        objects: jobs, and objects that describe them.
        gone: those deleted since the last view.
        pods: of jobs.
        conditions: of each resource, by its name in rules.
        followed: kinds (kind of the object) of which all objects are known.
        quotas: ResourceQuotas and ClusterQueues.
        nodes: with notices from Events; None while they are unknown.
    """

    objects: Sequence[WorkloadState]
    gone: Sequence[Gone[WorkloadState]]
    pods: Sequence[PodFacts]
    conditions: Mapping[str, Condition]
    followed: frozenset[str]
    quotas: Sequence[Quota] = ()
    nodes: Sequence[NodeFacts] | None = None

    @property
    def whole(self) -> bool:
        """Return True if each kind was read, or found to be missing, at least once.

        Before that nothing is known: an object may be a part of one that is not known yet.
        """
        return "starting" not in self.conditions.values()


class ClusterObjects:
    """Follows a cluster's objects until it is closed.

    Args:
        api: of the cluster.
        say: called with a sentence about what hides a kind of object.
        class_labels: of jobs, with their class.
    """

    def __init__(
        self,
        api: Api,
        say: Callable[[str], None],
        class_labels: Sequence[str] = CLASS_LABELS,
    ) -> None:
        self._kinds = [(one, Follower(api, _resource(one, class_labels), say)) for one in KINDS]
        self._pods: Follower[PodFacts] = Follower(api, PODS, say)
        self._quotas = [Follower(api, one, say) for one in QUOTA_KINDS]
        self._nodes: Follower[NodeFacts] = Follower(api, NODES, say)
        self._events: Follower[NodeEvent] = Follower(api, EVENTS, say)
        for follower in self._all():
            follower.start()

    def view(self) -> ClusterView:
        """Return what is known now; deleted objects are returned once."""
        objects: list[WorkloadState] = []
        gone: list[Gone[WorkloadState]] = []
        conditions: dict[str, Condition] = {}
        hidden: set[str] = set()
        for kind, follower in self._kinds:
            values, ended, condition = follower.held.take()
            objects += values.values()
            gone += ended
            conditions[kind.resource] = condition
            if condition not in {"followed", "absent"}:
                hidden.add(kind.kind)  # by kind alone: two groups have a Job
        found, _, condition = self._pods.held.take()
        conditions[PODS.name] = condition
        followed = frozenset(kind.kind for kind, _ in self._kinds) - hidden
        quotas: list[Quota] = []
        for of in self._quotas:
            limits, _, conditions[of.resource.name] = of.held.take()
            quotas += limits.values()
        pods_of_jobs = tuple(found.values())
        machines = self._nodes_now(conditions)
        return ClusterView(objects, gone, pods_of_jobs, conditions, followed, quotas, machines)

    def _nodes_now(self, conditions: dict[str, Condition]) -> Sequence[NodeFacts] | None:
        """Return the nodes, None while they are unknown; record what hides them."""
        found, _, conditions[NODES.name] = self._nodes.held.take()
        events, _, conditions[EVENTS.name] = self._events.held.take()
        if conditions[NODES.name] not in {"followed", "failing"}:
            return None
        return with_events(found.values(), events.values())

    def _all(self) -> Iterator[Follower[Any]]:
        yield from (follower for _, follower in self._kinds)
        yield self._pods
        yield from self._quotas
        yield self._nodes
        yield self._events

    def close(self) -> None:
        """Stop following."""
        for follower in self._all():
            follower.close()


def _resource(kind: Kind, class_labels: Sequence[str]) -> Resource[WorkloadState]:
    read = partial(_object, kind, class_labels)
    return Resource(kind.plural, kind.group, kind.versions, read)


def _object(
    kind: Kind, class_labels: Sequence[str], found: Mapping[str, Any]
) -> tuple[str, WorkloadState] | None:
    read = kinds.read(kind, found, class_labels)
    return None if read is None else (read.uid, read)


def _pod(found: Mapping[str, Any]) -> tuple[str, PodFacts] | None:
    read = pods.read(found)
    return None if read is None else (read.uid, read)


PODS: Resource[PodFacts] = Resource("pods", "", ("v1",), _pod)
NODES: Resource[NodeFacts] = Resource("nodes", "", ("v1",), nodes.read)
EVENTS: Resource[NodeEvent] = Resource(
    "events", "", ("v1",), nodes.event, "involvedObject.kind=Node"
)
QUOTA_KINDS: tuple[Resource[Quota], ...] = tuple(Resource(*row) for row in QUOTAS)
