"""The executive dashboard's panels on how jobs end, and how long they take."""

from __future__ import annotations

from rankscope_agent.contract.metrics import cluster_jobs, goodput
from rankscope_dashboards.expressions.job_ends import SUCCESS_WINDOWS, since, succeeded
from rankscope_dashboards.expressions.promql import by
from rankscope_dashboards.expressions.queries import CLUSTER, FEW, of
from rankscope_dashboards.parts import links
from rankscope_dashboards.parts.fields import colored
from rankscope_dashboards.parts.panels import BarGauge, Panel, Stat, TimeSeries, now, targets
from rankscope_dashboards.rules.recording_rules import (
    CLASS_GOODPUT,
    CLASS_LATE,
    GOODPUT_OBJECTIVE,
    SUCCESS_OBJECTIVE,
)

NO_ENDS = "no job has ended, or rankscope watch runs without --cluster-jobs"

NO_INTERRUPTION = "no job was interrupted, or rankscope watch is not scraped"


def panels(runbooks: str) -> list[Panel]:
    """Return the panels.

    Args:
        runbooks: address at which docs/runbooks is served.
    """
    first = [_success(), _causes(), _duration(), _trend(), _goodput(), _in_time()]
    return [*first, _recoveries(runbooks), *_interruptions()]


def _success() -> Panel:
    return BarGauge(
        title="Jobs that succeed",
        description="Share of the jobs that succeeded, of those that succeeded or failed, by class,"
        " with the objective of each class. Jobs that were cancelled or not observed do not count.",
        unit="percentunit",
        minimum=0,
        maximum=1,
        targets=now(
            *(
                (f"min by (job_class) ({succeeded(days, CLUSTER)})", f"{{{{job_class}}}} {days}")
                for days in SUCCESS_WINDOWS
            ),
            (f"min by (job_class) ({SUCCESS_OBJECTIVE}{{{CLUSTER}}})", "{{job_class}} objective"),
        ),
        missing=NO_ENDS,
        width=8,
    )


def _trend() -> Panel:
    ended = ("job_namespace", "job_class", "outcome", "cause")
    good, both = (
        f"sum({since(of(cluster_jobs.JOB_COMPLETIONS, CLUSTER, chosen), '7d', *ended)})"
        for chosen in ('outcome="succeeded"', 'outcome=~"succeeded|failed"')
    )
    return TimeSeries(
        title="Jobs that succeed, week by week",
        description="Share of the jobs that succeeded, of those that succeeded or failed in the"
        " seven days before each point in time; of all classes together.",
        unit="percentunit",
        minimum=0,
        maximum=1,
        targets=targets((f"{good} / ({both} > 0)", "succeeded")),
        overrides=colored(["succeeded"]),
        missing=NO_ENDS,
        width=24,
        height=6,
    )


def _causes() -> Panel:
    labels = ("job_namespace", "job_class", "outcome", "cause")
    failed = since(
        of(cluster_jobs.JOB_COMPLETIONS, CLUSTER, 'outcome="failed"'), "$__range", *labels
    )
    return BarGauge(
        title="Failed jobs by cause",
        description="Jobs that failed in the time range, by what their objects and pods say.",
        minimum=0,
        decimals=0,
        targets=now((f"topk({FEW}, sum by (cause) ({failed}) > 0)", "{{cause}}")),
        missing=f"no job failed; or {NO_ENDS}",
        width=8,
    )


def _duration() -> Panel:
    buckets = of(cluster_jobs.JOB_DURATION, CLUSTER, part="_bucket")
    grown = f"sum {by('job_class', 'le')} ({since(buckets, '$__range', 'job_class', 'le')})"
    return BarGauge(
        title="Time to complete",
        description="Half of the jobs that succeeded in the time range, and 19 of 20, took no"
        " longer than this from their creation to their end, waiting included; between two bounds"
        " of the histogram that is a guess.",
        unit="s",
        minimum=0,
        targets=now(*_quantiles("job_class", grown)),
        missing=NO_ENDS,
        width=8,
    )


def _in_time() -> Panel:
    return BarGauge(
        title="Jobs in time",
        description="Share of the jobs that succeeded within time_to_complete of rankscope.yaml,"
        " of those that succeeded in the last seven days, by class. The objective is 19 of 20.",
        unit="percentunit",
        minimum=0,
        maximum=1,
        targets=now((f"min by (job_class) (1 - {CLASS_LATE}{{{CLUSTER}}})", "{{job_class}}")),
        missing=f"no job has succeeded within seven days; or {NO_ENDS}",
        width=8,
    )


def _goodput() -> Panel:
    return BarGauge(
        title="Goodput by class",
        description="Share of the GPU time of the last day that no fault took, by class, with the"
        " objective of each class. Time that was not observed does not count.",
        unit="percentunit",
        minimum=0,
        maximum=1,
        targets=now(
            (f"min by (job_class) ({CLASS_GOODPUT}{{{CLUSTER}}})", "{{job_class}}"),
            (f"min by (job_class) ({GOODPUT_OBJECTIVE}{{{CLUSTER}}})", "{{job_class}} objective"),
        ),
        missing="no rankscope watch, or no recording rules",
        width=8,
    )


def _interruptions() -> list[Panel]:
    watched, often, lost, detected, late = (
        f"sum(increase({of(metric, CLUSTER)}[$__range]))"
        for metric in (
            goodput.PROJECT_JOB_SECONDS,
            goodput.PROJECT_INTERRUPTIONS,
            goodput.PROJECT_RECOVERY_SECONDS,
            goodput.PROJECT_DETECTIONS,
            goodput.PROJECT_DETECTION_SECONDS,
        )
    )
    return [
        _mean(
            "Mean time to failure",
            "How long jobs ran in the time range for each restart or hang, on average over all"
            " jobs, large and small.",
            f"{watched} / ({often} > 0)",
        ),
        _mean(
            "Mean time to detection",
            "How long after its beginning rankscope watch found an incident of a job, on average"
            " over those of the time range that began while it was watching.",
            f"{late} / ({detected} > 0)",
            "no incident was found, or rankscope watch is not scraped",
        ),
        _mean(
            "Mean time to recovery",
            "How long jobs made no steps because of a restart or hang in the time range, up to"
            " the first step after it.",
            f"{lost} / ({often} > 0)",
        ),
    ]


def _mean(title: str, description: str, ratio: str, missing: str = NO_INTERRUPTION) -> Panel:
    return Stat(
        title=title,
        description=description,
        unit="s",
        targets=now((ratio, "")),
        missing=missing,
        briefly="none",
        width=8,
    )


def _quantiles(label: str, grown: str) -> list[tuple[str, str]]:
    """Return queries for the times within which half and 19 of 20 ended, by a label."""
    return [
        (f"max by ({label}) (histogram_quantile({part}, {grown}))", f"{{{{{label}}}}} {name}")
        for part, name in ((0.5, "half"), (0.95, "19 of 20"))
    ]


def _recoveries(runbooks: str) -> Panel:
    buckets = of(goodput.RECOVERIES, CLUSTER, part="_bucket")
    labels = ("job_class", "interruption", "le")
    grown = f"sum {by('interruption', 'le')} ({since(buckets, '$__range', *labels)})"
    return BarGauge(
        title="Time to recover",
        description="Half of the recoveries of the time range, and 19 of 20, took no longer than"
        " this, from the last step before the restart or hang to the first one behind it.",
        unit="s",
        minimum=0,
        targets=now(*_quantiles("interruption", grown)),
        missing=NO_INTERRUPTION,
        links=[links.runbook(runbooks, "RankscopeRecoverySlow")],
        width=8,
    )
