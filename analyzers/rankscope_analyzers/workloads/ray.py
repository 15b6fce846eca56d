"""RayJob: two states, that of the job within Ray and that of its deployment.

Source: kuberay ray-operator/apis/ray/v1/rayjob_types.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankscope_analyzers.workloads import causes
from rankscope_analyzers.workloads.fields import (
    Fields,
    count,
    flag,
    moment,
    objects,
    text,
    whole,
    within,
)
from rankscope_analyzers.workloads.state import Cause, Outcome, Progress, Replicas, State

_DEPLOYMENT: Mapping[str, State] = {
    **dict.fromkeys(("", "Initializing", "Waiting"), "pending"),
    "Running": "running",
    "Retrying": "restarting",
    **dict.fromkeys(("Suspending", "Suspended"), "suspended"),
}
_ENDS: Mapping[str, tuple[State, Outcome]] = {
    "SUCCEEDED": ("succeeded", "succeeded"),
    "FAILED": ("failed", "failed"),
    "STOPPED": ("failed", "cancelled"),
}


def ray_job(found: Fields) -> Progress:
    """Return the progress of a RayJob, which ends with its deployment: failed tries repeat."""
    spec, status = within(found, "spec"), within(found, "status")
    state, outcome = _state(status)
    cause: Cause = ""
    if outcome == "failed":
        words = (text(status, "reason"), text(status, "jobDeploymentStatus"))
        cause = causes.of_words(" ".join(words), text(status, "message"))
    return Progress(
        state=state,
        outcome=outcome,
        cause=cause,
        replicas=_workers(spec, status),
        started=moment(status, "startTime"),
        ended=moment(status, "endTime") if outcome else None,
        attempt=count(status, "failed"),
        elastic=_elastic(_groups(spec)),
        suspended=flag(spec, "suspend"),
    )


def _state(status: Fields) -> tuple[State, Outcome]:
    deployment = text(status, "jobDeploymentStatus")
    if deployment in {"Failed", "ValidationFailed"}:
        return "failed", "failed"
    if deployment == "Complete":
        return _ENDS.get(text(status, "jobStatus"), ("unknown", ""))
    return _DEPLOYMENT.get(deployment, "unknown"), ""


def _groups(spec: Fields) -> tuple[Fields, ...]:
    return objects(within(spec, "rayClusterSpec"), "workerGroupSpecs")


def _workers(spec: Fields, status: Fields) -> tuple[Replicas, ...]:
    cluster = within(status, "rayClusterStatus")
    wanted = whole(cluster, "desiredWorkerReplicas")
    if wanted is None:
        wanted = sum(count(one, "replicas") for one in _groups(spec))
    return (Replicas("worker", wanted, count(cluster, "availableWorkerReplicas")),)


def _elastic(groups: tuple[Fields, ...]) -> tuple[int, int] | None:
    bounds = [(count(one, "minReplicas"), count(one, "maxReplicas")) for one in groups]
    least, most = sum(few for few, _ in bounds), sum(many for _, many in bounds)
    return (least, most) if bounds and least < most else None
