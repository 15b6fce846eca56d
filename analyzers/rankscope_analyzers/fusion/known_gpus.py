"""Which GPUs a job's ranks use, and on which nodes none is known, so that they may compute on CPUs.

Step records only have local ranks, which count the GPUs of a rank's pod or job. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rankscope_agent.contract.metrics import training
from rankscope_analyzers.findings.finding import RankLocation
from rankscope_analyzers.fusion.job_reports import READS
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.steps.job_records import JobRecords

OF_GPUS = tuple(metric for metric in READS if "gpu" in metric.labels)
"""Series that a node without GPUs does not have."""

BY_DEVICE = frozenset(("kernel", "sampled"))
"""How steps are timed on GPUs alone."""


def without_gpus(job: JobRecords, observed: Observed) -> JobRecords:
    """Return a job's records with the nodes whose pages show no GPU.

    Args:
        job: its records, which have a local rank for a GPU.
        observed: pages; of a node without any nothing is known.
    """
    names = {str(node) for node in job.records["node"].unique()}
    seen = names & observed.nodes
    bare = seen - observed.nodes_with(OF_GPUS)
    bare -= {one.node for one in observed.of(training.RANK_INFO) if one.labels.get("uuid")}
    if bare and "timing_source" in job.records:
        timed = job.records.loc[job.records["timing_source"].isin(BY_DEVICE), "node"]
        bare -= {str(node) for node in timed.unique()}
    return replace(job, without_gpus=frozenset(bare)) if bare else job


def with_gpus(job: JobRecords, locations: Mapping[int, RankLocation]) -> JobRecords:
    """Return a job's records with the GPUs of its ranks, as far as pages tell."""
    found = {
        (rank, one.node): one.gpu for rank, one in locations.items() if one.gpu or one.gpu_unknown
    }
    return replace(job, gpus_of_ranks=found) if found else job
