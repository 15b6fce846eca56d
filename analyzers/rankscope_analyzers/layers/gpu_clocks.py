"""GPUs whose clock, power or temperature differs from their peers', as findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.gpus import frames as gpu_frames
from rankscope_analyzers.gpus import throttle
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.series_findings import query_of

READS = gpu_frames.READS

KINDS = frozenset(get_args(throttle.Kind))


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield what deviates among the GPUs of the job."""
    samples = gpu_frames.of_observed(observed)
    samples = samples[samples["node"].isin(job.nodes)]
    samples = samples[samples["job_id"].isin(["", job.job_id])]
    for found in throttle.analyze(samples):
        where = job.of_gpus(found.where.nodes[0], found.where.uuids, found.where.gpus)
        if where is not None:
            evidence = tuple(replace(item, source=_series(item.source)) for item in found.evidence)
            source = query_of(evidence, job.job_id, where)
            yield replace(
                found, job_id=job.job_id, where=where, evidence=evidence, source=source, cost=None
            )


def _series(column: str) -> str:
    """Return the name of the series that a column of the frame was made from."""
    known = gpu_frames.VALUES.get(column.replace("_share", "_seconds"))
    return known[0].name if known else column
