"""Job (Indexed too), CronJob, JobSet and TrainJob: the kinds based on Kubernetes' own Job.

Source: k8s.io/api/batch/v1, jobset api/jobset/v1alpha2, trainer pkg/apis/trainer/v1alpha1.
"""

from __future__ import annotations

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
from rankscope_analyzers.workloads.state import Progress, Replicas, State


def job(found: Fields) -> Progress:
    """Return the progress of a Job: SuccessCriteriaMet and FailureTarget are not its end yet."""
    spec, status = within(found, "spec"), within(found, "status")
    conditions = holding(status)
    suspended = flag(spec, "suspend")
    active = count(status, "active")
    wanted = whole(spec, "parallelism")
    replicas = Replicas(
        "pod",
        1 if wanted is None else wanted,
        active,
        count(status, "succeeded"),
        count(status, "failed"),
    )
    return _ended(
        conditions,
        "Complete",
        Progress(
            state=_standing(conditions, suspended, active > 0),
            replicas=(replicas,),
            started=moment(status, "startTime"),
            ended=moment(status, "completionTime"),
            # With several pods it counts pods, not restarts of the whole.
            attempt=count(status, "failed") if wanted in {None, 1} else None,
            suspended=suspended,
        ),
    )


def cron_job(found: Fields) -> Progress:
    """Return the progress of a CronJob; its runs are Jobs, and end by themselves."""
    spec, status = within(found, "spec"), within(found, "status")
    active = len(objects(status, "active"))
    suspended = flag(spec, "suspend")
    return Progress(
        state="running" if active else "suspended" if suspended else "pending",
        replicas=(Replicas("run", active=active),),
        suspended=suspended,
    )


def job_set(found: Fields) -> Progress:
    """Return the progress of a JobSet."""
    spec, status = within(found, "spec"), within(found, "status")
    conditions = holding(status)
    suspended = flag(spec, "suspend")
    replicas = _replicated(spec, status)
    active = any(one.active for one in replicas)
    state = _standing(conditions, suspended, active)
    if state in {"running", "pending"} and "RestartingJobSet" in conditions:
        state = "restarting"
    return _ended(
        conditions,
        "Completed",
        Progress(
            state=state,
            replicas=replicas,
            attempt=count(status, "restarts"),
            suspended=suspended,
        ),
    )


def train_job(found: Fields) -> Progress:
    """Return the progress of a TrainJob."""
    spec, status = within(found, "spec"), within(found, "status")
    conditions = holding(status)
    suspended = flag(spec, "suspend")
    wanted = whole(within(spec, "trainer"), "numNodes")
    replicas = tuple(
        Replicas(
            text(one, "name"),
            wanted if text(one, "name") == "node" else None,
            *(count(one, key) for key in ("active", "succeeded", "failed")),
        )
        for one in objects(status, "jobsStatus")
    )
    active = any(one.active for one in replicas)
    return _ended(
        conditions,
        "Complete",
        Progress(
            state=_standing(conditions, suspended, active), replicas=replicas, suspended=suspended
        ),
    )


def _replicated(spec: Fields, status: Fields) -> tuple[Replicas, ...]:
    had = {text(one, "name"): one for one in objects(status, "replicatedJobsStatus")}
    return tuple(
        Replicas(
            text(one, "name"),
            1 if whole(one, "replicas") is None else whole(one, "replicas"),
            *(
                count(had.get(text(one, "name"), {}), key)
                for key in ("active", "succeeded", "failed")
            ),
        )
        for one in objects(spec, "replicatedJobs")
    )


def _standing(conditions: Conditions, suspended: bool, active: bool) -> State:
    if suspended or "Suspended" in conditions:
        return "suspended"
    return "running" if active else "pending"


def _ended(conditions: Conditions, success: str, going_on: Progress) -> Progress:
    """Return the end if there is one, else the current state."""
    failure = conditions.get("Failed")
    end = conditions.get(success) or failure
    if end is None:
        return going_on
    failed = success not in conditions
    return Progress(
        state="failed" if failed else "succeeded",
        outcome="failed" if failed else "succeeded",
        cause=causes.of_condition(failure) if failed else "",
        replicas=going_on.replicas,
        started=going_on.started,
        ended=going_on.ended or end.since,
        attempt=going_on.attempt,
    )
