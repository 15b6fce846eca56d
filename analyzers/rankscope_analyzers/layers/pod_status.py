"""Why a job's pods do not run: crash loops, failures, images, secrets, preemptions."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope_agent.contract import pod_reasons
from rankscope_agent.contract.metrics import job_status, pods
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Evidence, Finding, Where
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers import listed_pods
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.series_findings import series_finding
from rankscope_analyzers.text.wording import clock

READS: tuple[Metric, ...] = (
    job_status.JOB_WAITING_PODS,
    job_status.JOB_LAST_FAILURE,
    *listed_pods.READS,
)

FAILED, PENDING, PREEMPTED = "pod_failed", "pod_pending", "pod_preempted"
LOOP, IMAGE, NOT_CREATED = "crash_loop", "image_not_pulled", "container_not_created"
KINDS = frozenset((FAILED, PENDING, PREEMPTED, LOOP, IMAGE, NOT_CREATED))

NEWS_SECONDS = 3600.0
"""An older failure or preemption explains nothing about now: the job has continued since, or its
pods still exist as failed ones."""

_WAITS = {
    **dict.fromkeys(pod_reasons.with_init((pod_reasons.CRASH_LOOP,)), LOOP),
    **dict.fromkeys(pod_reasons.with_init(pod_reasons.IMAGE_FAULTS), IMAGE),
    **dict.fromkeys(pod_reasons.with_init(pod_reasons.CREATION_FAULTS), NOT_CREATED),
}
_PHRASES = {
    LOOP: "in a crash loop",
    IMAGE: "waiting for an image that cannot be pulled",
    NOT_CREATED: "waiting for a container that cannot be created",
    PENDING: "waiting to run",
}


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield what keeps the job's pods from running, by node."""
    reported: set[tuple[str, str]] = set()
    for series in listed_pods.shown(observed, job_status.JOB_WAITING_PODS, job_id=job.job_id):
        if series.last > 0:
            kind = _WAITS.get(series.labels.get("reason", ""), PENDING)
            reported.add((series.node, kind))
            yield _waiting(kind, observed, job, series)
    for node in sorted(observed.nodes):
        looping = (node, LOOP) in reported
        yield from _happened(observed.on((node,)), job, reported, looping=looping)
    for phase, kind in (("Failed", FAILED), ("Pending", PENDING)):
        for series in listed_pods.shown(observed, pods.JOB_PODS, job_id=job.job_id, phase=phase):
            waits = any((series.node, other) in reported for other in _PHRASES)
            if (
                series.last > 0
                and (series.node, kind) not in reported
                and not (kind == PENDING and waits)
            ):
                verb = "failed" if kind == FAILED else "wait to run"
                sentence = f"{_count(series.last)} on node {series.node} {verb}"
                yield _finding(kind, job, series, sentence, series.held_since())


def jobs_with_pods(observed: Observed) -> frozenset[str]:
    """Return the jobs with a pod that is to run, or that failed or was preempted within an hour.

    Pods that completed, or failed long ago, remain until somebody deletes them.
    """
    present = {
        series.labels.get("job_id", "")
        for series in listed_pods.shown(observed, pods.JOB_PODS)
        if series.last > 0 and series.labels.get("phase") not in {"Succeeded", "Failed"}
    }
    failed = {
        series.labels.get("job_id", "")
        for series in observed.of(job_status.JOB_LAST_FAILURE)
        if _is_news(series)
    }
    return frozenset((present | failed) - {""})


def _is_news(series: Series) -> bool:
    return float(series.times[-1]) - series.last < NEWS_SECONDS


def _waiting(kind: str, observed: Observed, job: JobView, series: Series) -> Finding:
    be = "is" if series.last == 1 else "are"
    reason = series.labels.get("reason", "")
    sentence = f"{_count(series.last)} on node {series.node} {be} {_PHRASES[kind]} ({reason})"
    failure = _newest(observed.on((series.node,)), job, preempted=False) if kind == LOOP else None
    if failure is not None:
        sentence += f"; the newest failure was {_named(failure)} at {clock(failure.last)}"
    return _finding(kind, job, series, sentence, series.held_since())


def _happened(
    observed: Observed, job: JobView, reported: set[tuple[str, str]], *, looping: bool
) -> Iterator[Finding]:
    """Yield a node's newest failure and preemption; a crash loop has reported its failures."""
    for kind, preempted in ((FAILED, False), (PREEMPTED, True)):
        series = _newest(observed, job, preempted=preempted)
        if series is None or (kind == FAILED and looping):
            continue
        verb = "taken away" if preempted else "failing"
        reported.add((series.node, kind))
        be = "were" if preempted else "were last seen"
        sentence = (
            f"pods on node {series.node} {be} {verb} at {clock(series.last)}: {_named(series)}"
        )
        yield _finding(kind, job, series, sentence, series.last)


def _newest(observed: Observed, job: JobView, *, preempted: bool) -> Series | None:
    """Return the newest failure, or preemption, that is recent; None if there is none."""
    found = [
        series
        for series in observed.of(job_status.JOB_LAST_FAILURE, job_id=job.job_id)
        if (series.labels.get("reason", "") in pod_reasons.PREEMPTIONS) is preempted
        and _is_news(series)
    ]
    return max(found, key=lambda series: series.last, default=None)


def _named(series: Series) -> str:
    detail = series.labels.get("detail", "")
    return series.labels.get("reason", "") + (f" ({detail})" if detail else "")


def _count(number: float) -> str:
    return f"{number:.0f} pod{'s' * (number > 1)}"


def _finding(
    kind: str, job: JobView, series: Series, sentence: str, since: float | None
) -> Finding:
    evidence = Evidence(series.name, series.last, 0.0, _UNITS.get(series.name, "count"), sentence)
    where = Where(nodes=(series.node,))
    return series_finding(kind, "pod", job.job_id, where, sentence, (evidence,), since)


_UNITS = {job_status.JOB_LAST_FAILURE.name: "unix seconds"}
