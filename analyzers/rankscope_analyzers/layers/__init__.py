"""Findings about a job from every layer other than step times.

One module per subject: `READS` lists the series that it needs, `findings` is a pure function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rankscope_agent.contract.metrics import agent, pods, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Finding, Layer
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.layers import (
    checkpoints,
    device_health,
    endings,
    environment,
    gpu_clocks,
    gpu_health,
    hang,
    host_pressure,
    kernel_log,
    learning,
    link_faults,
    log_failures,
    nccl_transport,
    node_notices,
    pod_status,
    process_deaths,
    replica_groups,
    starvation,
    storage_clients,
)
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.page_findings import PageFindings


@dataclass(frozen=True, slots=True)
class Subject:
    """One module of this package.

    Args:
        layer: of its findings.
        reads: series that it needs.
        kinds: of findings that it can return.
        findings: returns the findings about one job.
        of_pages: True if these depend only on series and on where the job's ranks run.
    """

    layer: Layer
    reads: tuple[Metric, ...]
    kinds: frozenset[str]
    findings: Callable[[Observed, JobView], Iterator[Finding]]
    of_pages: bool = False


SUBJECTS: tuple[Subject, ...] = (
    Subject("gpu", gpu_health.READS, gpu_health.KINDS, gpu_health.findings, of_pages=True),
    Subject("gpu", gpu_clocks.READS, gpu_clocks.KINDS, gpu_clocks.findings, of_pages=True),
    Subject("kernel", kernel_log.READS, kernel_log.KINDS, kernel_log.findings),
    Subject("kernel", process_deaths.READS, process_deaths.KINDS, process_deaths.findings),
    Subject("link", link_faults.READS, link_faults.KINDS, link_faults.findings, of_pages=True),
    Subject("nccl", nccl_transport.READS, nccl_transport.KINDS, nccl_transport.findings),
    Subject("host", host_pressure.READS, host_pressure.KINDS, host_pressure.findings),
    Subject("host", starvation.READS, starvation.KINDS, starvation.findings),
    Subject("host", storage_clients.READS, storage_clients.KINDS, storage_clients.findings),
    Subject("pod", endings.READS, endings.KINDS, endings.findings),
    Subject("pod", node_notices.READS, node_notices.KINDS, node_notices.findings),
    Subject("pod", pod_status.READS, pod_status.KINDS, pod_status.findings),
    Subject("log", log_failures.READS, log_failures.KINDS, log_failures.findings),
    Subject("pod", device_health.READS, device_health.KINDS, device_health.findings),
    Subject("training", hang.READS, hang.KINDS, hang.findings),
    Subject("signals", checkpoints.READS, checkpoints.KINDS, checkpoints.findings),
    Subject("signals", learning.READS, learning.KINDS, learning.findings),
    Subject("environment", environment.READS, environment.KINDS, environment.findings),
)

SHARED = frozenset(
    (
        *(pods.GPU_ALLOCATION_INFO, pods.POD_SOURCE_UP),
        *(training.RANK_INFO, training.CPU_WAIT_SECONDS),
        *(agent.SNAPSHOT_TIMESTAMP, *endings.OF_AGENTS),
        *process_deaths.READS,
        *node_notices.READS,
    )
)
"""Series that layers need but that do not show that the layer was observed."""

READS: tuple[Metric, ...] = tuple(
    dict.fromkeys(metric for subject in SUBJECTS for metric in subject.reads)
)
"""All series that any layer needs."""


@dataclass(frozen=True, slots=True)
class JobFindings:
    """The findings of all layers about one job.

    Args:
        errors: of the modules that raised.
        failed_layers: their layers, whose findings are incomplete.
    """

    findings: tuple[Finding, ...]
    errors: tuple[AnalysisError, ...] = ()
    failed_layers: frozenset[Layer] = frozenset()


def findings_of_job(
    observed: Observed, job: JobView, known: PageFindings | None = None
) -> JobFindings:
    """Return the findings of all layers; a module that raises loses only its own.

    Args:
        observed: series of the job's nodes.
        job: the job.
        known: findings from the same pages at an earlier report.
    """
    of_pages = known or PageFindings()
    findings: list[Finding] = []
    errors: list[AnalysisError] = []
    failed_layers: set[Layer] = set()
    for subject in SUBJECTS:
        found = attempt(
            "layer", job.job_id, partial(_layer_findings, subject, observed, job, of_pages)
        )
        if isinstance(found, AnalysisError):
            errors.append(found)
            failed_layers.add(subject.layer)
        else:
            findings.extend(found)
    found_of_all = tuple(replica_groups.with_ends(findings))
    return JobFindings(found_of_all, tuple(errors), frozenset(failed_layers))


def _layer_findings(
    subject: Subject, observed: Observed, job: JobView, known: PageFindings
) -> Sequence[Finding]:
    if subject.of_pages:
        return known.of(subject.findings, observed, job)
    return list(subject.findings(observed, job))


def nodes_seen(observed: Observed) -> Mapping[Layer, frozenset[str]]:
    """Return the nodes for which each layer has any series."""
    found: dict[Layer, frozenset[str]] = {}
    for subject in SUBJECTS:
        nodes = observed.nodes_with(metric for metric in subject.reads if metric not in SHARED)
        found[subject.layer] = found.get(subject.layer, frozenset()) | nodes
    return found
