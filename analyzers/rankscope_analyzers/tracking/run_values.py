"""What a run of MLflow shows about a job: metrics by name, tags, from the watch's series. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rankscope_agent.contract.metrics import goodput
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.text.sanitize import name as inert
from rankscope_analyzers.text.sanitize import visible

JOB_ID, SOURCE, INCIDENT, RUN_NAME = (
    "rankscope.job_id",
    "rankscope.source",
    "rankscope.incident",
    "mlflow.runName",
)
WATCH = "watch"
"""The source of runs that the watch itself began."""

TAG_CHARACTERS = 1000
"""Characters of a tag; all of MLflow's stores accept 5,000."""

NAMES: Mapping[str, str] = {
    goodput.JOB_GPU_SECONDS.name: "rankscope/gpu_seconds/{part}",
    goodput.JOB_ETTR.name: "rankscope/effective_training_time_ratio",
    goodput.JOB_MFU.name: "rankscope/model_flops_utilization/{dtype}",
    goodput.JOB_FLOPS.name: "rankscope/model_flops_per_second",
    goodput.JOB_RECOVERY.name: "rankscope/last_recovery_seconds/{interruption}",
    goodput.JOB_SCALING.name: "rankscope/scaling_efficiency",
}
"""Names of a run's metrics, with labels of the series that they come from."""


@dataclass(frozen=True, slots=True)
class RunValues:
    """What is logged of one job at one moment.

    Args:
        metrics: by name.
        tags: likewise.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


def of_jobs(samples: Iterable[Sample], reports: Sequence[JobReport]) -> dict[str, RunValues]:
    """Return what is logged of each job with a report.

    Args:
        samples: series of the watch; those of no single job are left out.
        reports: of the same look.
    """
    metrics: dict[str, dict[str, float]] = defaultdict(dict)
    for one in samples:
        template = NAMES.get(one.metric.name)
        if template is not None and isinstance(one.value, int | float):
            labels = dict(zip(one.metric.labels, one.labels, strict=True))
            metrics[labels["job_id"]][template.format(**labels)] = float(one.value)
    return {
        inert(report.job_id): RunValues(metrics.get(inert(report.job_id), {}), _tags(report))
        for report in reports
    }


def _tags(report: JobReport) -> dict[str, str]:
    running = [one for one in report.incidents if one.until_unix_seconds is None]
    summary = visible(running[0].summary, TAG_CHARACTERS) if running else "none"
    return {JOB_ID: inert(report.job_id), INCIDENT: summary}
