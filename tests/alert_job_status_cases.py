"""Series that bring about the alerts about jobs' pods: failed, waiting, preempted or too few."""

from __future__ import annotations

from alert_series import (
    ALIVE,
    JOB,
    NODE,
    OWNER,
    failure,
    pods_by_phase,
    waiting,
)
from alert_timelines import Case, event, gauge

JOB_STATUS_CASES: dict[str, Case] = {
    "RankscopePodFailed": Case(
        (
            event(failure("OOMKilled", detail="sigkill")),
            event(
                failure("DisruptionTarget", detail="PreemptionByScheduler"), below=True, bad=False
            ),
            OWNER,
        ),
        linger=15,
        gap=5,
    ),
    "RankscopeCrashLoop": Case(
        (
            event(failure("OOMKilled", detail="sigkill")),
            *waiting("CrashLoopBackOff", "ImagePullBackOff"),
        )
    ),
    "RankscopeImagePullFailing": Case(waiting("Init:ImagePullBackOff", "ContainerCreating")),
    "RankscopeContainerNotCreated": Case(waiting("CreateContainerConfigError", "PodInitializing")),
    "RankscopeJobPreempted": Case(
        (
            event(failure("DisruptionTarget", detail="PreemptionByScheduler")),
            event(failure("Evicted"), below=True),
            OWNER,
        ),
        linger=15,
        gap=5,
    ),
    "RankscopeJobTakenAway": Case(
        (
            event(failure("DisruptionTarget", detail="PreemptionByScheduler")),
            event(failure("Evicted"), below=True),
        ),
        linger=45,
        gap=5,
    ),
    "RankscopeJobRequeued": Case((gauge(f"rankscope_job_interruptions{{{JOB}}}", 5, 2, 2), OWNER)),
    "RankscopeQuotaWait": Case(
        (
            gauge(f'rankscope_job_pending_seconds{{{JOB},reason="quota"}}', 86_500, 86_300, 60),
            OWNER,
        )
    ),
    "RankscopeJobPending": Case(pods_by_phase((2, 0, 2), (0, 2, 1))),
    "RankscopeGangPartial": Case(pods_by_phase((1, 0, 1), (3, 4, 0))),
    "RankscopeElasticJobDegraded": Case(
        (gauge(f"rankscope_job_world_size{{{NODE},{JOB}}}", 448, 512, 512), ALIVE, OWNER)
    ),
}
