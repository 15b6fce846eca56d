"""Volcano's Job, Kueue's Workload, the PodGroup of coscheduling and LeaderWorkerSet.

Source: volcano staging/.../batch/v1alpha1/job.go, kueue apis/kueue/v1beta1/workload_types.go,
scheduler-plugins apis/scheduling/v1alpha1, lws api/leaderworkerset/v1.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankscope_analyzers.workloads import causes
from rankscope_analyzers.workloads.conditions import Conditions, holding
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

_VOLCANO: Mapping[str, tuple[State, Outcome]] = {
    "": ("pending", ""),
    "Pending": ("pending", ""),
    "Running": ("running", ""),
    "Restarting": ("restarting", ""),
    "Completing": ("running", ""),
    "Aborting": ("suspended", ""),
    "Aborted": ("suspended", ""),  # a job that was aborted can be resumed
    "Terminating": ("running", ""),
    "Completed": ("succeeded", "succeeded"),
    "Terminated": ("failed", "failed"),
    "Failed": ("failed", "failed"),
}


def volcano_job(found: Fields) -> Progress:
    """Return the progress of a Job of Volcano."""
    spec, status = within(found, "spec"), within(found, "status")
    now = within(status, "state")
    state, outcome = _VOLCANO.get(text(now, "phase"), ("unknown", ""))
    cause: Cause = ""
    if outcome == "failed":
        cause = causes.of_words(text(now, "reason"), text(now, "message"))
        if cause == "unknown" and text(now, "phase") == "Terminated":
            cause = "terminated"
    return Progress(
        state=state,
        outcome=outcome,
        cause=cause,
        replicas=tuple(_task(one, status) for one in objects(spec, "tasks")),
        started=_first_running(status),
        ended=moment(now, "lastTransitionTime") if outcome else None,
        attempt=count(status, "retryCount"),
        suspended=state == "suspended",
        queue=text(spec, "queue"),
        gang=whole(spec, "minAvailable"),
    )


def _task(task: Fields, status: Fields) -> Replicas:
    name = text(task, "name")
    phases = within(status, "taskStatusCount", name, "phase")
    return Replicas(
        name,
        whole(task, "replicas"),
        *(count(phases, phase) for phase in ("Running", "Succeeded", "Failed")),
    )


def _first_running(status: Fields) -> float | None:
    """Return when it first ran: its conditions name phases that it was in."""
    times = [
        moment(one, "lastTransitionTime")
        for one in objects(status, "conditions")
        if text(one, "status") == "Running"
    ]
    return min((at for at in times if at is not None), default=None)


def workload(found: Fields) -> Progress:
    """Return the progress that a Workload of Kueue shows of the job that owns it."""
    spec, status = within(found, "spec"), within(found, "status")
    conditions = holding(status)
    outcome = _finished(conditions)
    return Progress(
        state=_admission(conditions, outcome, active=spec.get("active") is not False),
        outcome=outcome,
        cause=causes.of_condition(conditions.get("Finished")) if outcome == "failed" else "",
        replicas=tuple(
            Replicas(text(one, "name"), whole(one, "count")) for one in objects(spec, "podSets")
        ),
        started=conditions["Admitted"].since if "Admitted" in conditions else None,
        ended=conditions["Finished"].since if outcome else None,
        elastic=_least(spec),
        suspended="Admitted" not in conditions and not outcome,
        queue=text(within(status, "admission"), "clusterQueue") or text(spec, "queueName"),
        interrupted=_interrupted(conditions),
        interruptions=_requeues(status),
    )


def _finished(conditions: Conditions) -> Outcome:
    finished = conditions.get("Finished")
    if finished is None:
        return ""
    return "failed" if "fail" in finished.reason.lower() else "succeeded"


def _admission(conditions: Conditions, outcome: Outcome, *, active: bool) -> State:
    if outcome == "succeeded":
        return "succeeded"
    if outcome == "failed":
        return "failed"
    if not active:
        return "suspended"
    return "running" if "Admitted" in conditions else "queued"


def _interrupted(conditions: Conditions) -> Cause:
    found = conditions.get("Evicted")
    if found is None:
        return "preempted" if "Preempted" in conditions else ""
    cause = causes.of_words(found.reason)
    return "evicted" if cause == "unknown" else cause


def _requeues(status: Fields) -> int:
    evictions = objects(within(status, "schedulingStats"), "evictions")
    counted = sum(count(one, "count") for one in evictions)
    return max(counted, count(within(status, "requeueState"), "count"))


def _least(spec: Fields) -> tuple[int, int] | None:
    """Return the minimum and the wanted number of pods, summed, if fewer than all suffice."""
    sets = objects(spec, "podSets")
    if all(whole(one, "minCount") is None for one in sets):
        return None
    counts = [count(one, "count") for one in sets]
    least = [whole(one, "minCount") for one in sets]
    given = zip(least, counts, strict=True)
    return sum(most if few is None else few for few, most in given), sum(counts)


_POD_GROUP: Mapping[str, tuple[State, Outcome]] = {
    **dict.fromkeys(("", "Pending", "PreScheduling", "Scheduling"), ("pending", "")),
    **dict.fromkeys(("Scheduled", "Running"), ("running", "")),
    "Finished": ("succeeded", "succeeded"),
    "Failed": ("failed", "failed"),
}


def pod_group(found: Fields) -> Progress:
    """Return the progress that a PodGroup of coscheduling shows of its job."""
    status = within(found, "status")
    state, outcome = _POD_GROUP.get(text(status, "phase"), ("unknown", ""))
    gang = whole(within(found, "spec"), "minMember")
    counts = (count(status, key) for key in ("running", "succeeded", "failed"))
    return Progress(
        state=state,
        outcome=outcome,
        cause="unknown" if outcome == "failed" else "",
        replicas=(Replicas("pod", gang, *counts),),
        started=moment(status, "scheduleStartTime"),
        gang=gang,
    )


def leader_worker_set(found: Fields) -> Progress:
    """Return the progress of a LeaderWorkerSet, which serves and never ends by itself."""
    spec, status = within(found, "spec"), within(found, "status")
    conditions = holding(status)
    wanted = whole(spec, "replicas")
    ready = count(status, "readyReplicas")
    running = "Available" in conditions or ready > 0
    return Progress(
        state="running" if running else "pending",
        replicas=(Replicas("group", 1 if wanted is None else wanted, ready),),
        gang=whole(within(spec, "leaderWorkerTemplate"), "size"),
        suspended=flag(spec, "suspend"),
    )
