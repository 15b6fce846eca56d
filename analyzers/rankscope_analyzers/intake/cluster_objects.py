"""Follows all objects of the cluster that say something of jobs: each kind by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rankscope_analyzers.intake.kubernetes_api import Api
from rankscope_analyzers.intake.object_watch import Condition, Follower, Gone, Resource
from rankscope_analyzers.workloads import kinds, pods
from rankscope_analyzers.workloads.kinds import KINDS, Kind
from rankscope_analyzers.workloads.pods import PodFacts
from rankscope_analyzers.workloads.state import WorkloadState


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What is known of a cluster at one moment.

    Args:
        objects: jobs, and what says something of them.
        gone: those that went since the last view.
        pods: of jobs.
        conditions: of each resource, by its name in rules.
        followed: kinds (kind of the object) of which all objects are known.
    """

    objects: Sequence[WorkloadState]
    gone: Sequence[Gone[WorkloadState]]
    pods: Sequence[PodFacts]
    conditions: Mapping[str, Condition]
    followed: frozenset[str]

    @property
    def whole(self) -> bool:
        """Whether each kind was read, or found not to be there, at least once.

        Before that nothing is known: an object may be a part of one that is not known yet.
        """
        return "starting" not in self.conditions.values()


class ClusterObjects:
    """Follows a cluster's objects until it is closed.

    Args:
        api: of the cluster.
        say: takes a sentence about what hides a kind of object.
    """

    def __init__(self, api: Api, say: Callable[[str], None]) -> None:
        self._kinds = [(one, Follower(api, _resource(one), say)) for one in KINDS]
        self._pods: Follower[PodFacts] = Follower(api, PODS, say)
        for _, follower in self._kinds:
            follower.start()
        self._pods.start()

    def view(self) -> ClusterView:
        """Return what is known now; what has gone is returned once."""
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
        return ClusterView(objects, gone, tuple(found.values()), conditions, followed)

    def close(self) -> None:
        """Stop following."""
        for _, follower in self._kinds:
            follower.close()
        self._pods.close()


def _resource(kind: Kind) -> Resource[WorkloadState]:
    return Resource(kind.plural, kind.group, kind.versions, partial(_object, kind))


def _object(kind: Kind, found: Mapping[str, Any]) -> tuple[str, WorkloadState] | None:
    read = kinds.read(kind, found)
    return None if read is None else (read.uid, read)


def _pod(found: Mapping[str, Any]) -> tuple[str, PodFacts] | None:
    read = pods.read(found)
    return None if read is None else (read.uid, read)


PODS: Resource[PodFacts] = Resource("pods", "", ("v1",), _pod)
