"""The signals about a job from every layer other than step times.

One module per subject: `READS` says which series it needs, `signals` is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from rankscope_agent.contract.metrics import pods, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Finding, Layer
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.layers import (
    endings,
    environment,
    gpu_clocks,
    gpu_health,
    host_pressure,
    kernel_log,
    link_faults,
    membership,
    nccl_transport,
    process_deaths,
    starvation,
)
from rankscope_analyzers.layers.job_view import JobView


@dataclass(frozen=True, slots=True)
class Subject:
    """One module of this package.

    Args:
        layer: what it looks at.
        reads: series that it needs.
        kinds: of the signals that it can give.
        signals: what it concludes of one job.
    """

    layer: Layer
    reads: tuple[Metric, ...]
    kinds: frozenset[str]
    signals: Callable[[Observed, JobView], Iterator[Finding]]


SUBJECTS: tuple[Subject, ...] = (
    Subject("gpu", gpu_health.READS, gpu_health.KINDS, gpu_health.signals),
    Subject("gpu", gpu_clocks.READS, gpu_clocks.KINDS, gpu_clocks.signals),
    Subject("kernel", kernel_log.READS, kernel_log.KINDS, kernel_log.signals),
    Subject("kernel", process_deaths.READS, process_deaths.KINDS, process_deaths.signals),
    Subject("link", link_faults.READS, link_faults.KINDS, link_faults.signals),
    Subject("nccl", nccl_transport.READS, nccl_transport.KINDS, nccl_transport.signals),
    Subject("host", host_pressure.READS, host_pressure.KINDS, host_pressure.signals),
    Subject("host", starvation.READS, starvation.KINDS, starvation.signals),
    Subject("pod", endings.READS, endings.KINDS, endings.signals),
    Subject("pod", membership.READS, membership.KINDS, membership.signals),
    Subject("environment", environment.READS, environment.KINDS, environment.signals),
)

SHARED = frozenset(
    (
        *(pods.GPU_ALLOCATION_INFO, training.RANK_INFO, training.CPU_WAIT_SECONDS),
        *process_deaths.READS,
    )
)
"""Series that layers need and that do not show that the layer was looked at."""

READS: tuple[Metric, ...] = tuple(
    dict.fromkeys(metric for subject in SUBJECTS for metric in subject.reads)
)
"""All series that any layer needs."""


@dataclass(frozen=True, slots=True)
class JobSignals:
    """What the layers say of one job.

    Args:
        errors: of the modules that raised.
        failed_layers: their layers, of which nobody knows all that there was to say.
    """

    signals: tuple[Finding, ...]
    errors: tuple[AnalysisError, ...] = ()
    failed_layers: frozenset[Layer] = frozenset()


def signals_of_job(observed: Observed, job: JobView) -> JobSignals:
    """Return what each layer says of a job; one that raises costs what it would have said."""
    signals: list[Finding] = []
    errors: list[AnalysisError] = []
    failed_layers: set[Layer] = set()
    for subject in SUBJECTS:
        found = attempt("layer", job.job_id, partial(_layer_signals, subject, observed, job))
        if isinstance(found, AnalysisError):
            errors.append(found)
            failed_layers.add(subject.layer)
        else:
            signals.extend(found)
    return JobSignals(tuple(signals), tuple(errors), frozenset(failed_layers))


def _layer_signals(subject: Subject, observed: Observed, job: JobView) -> list[Finding]:
    return list(subject.signals(observed, job))


def nodes_seen(observed: Observed) -> Mapping[Layer, frozenset[str]]:
    """Return the nodes of which each layer has any series."""
    found: dict[Layer, frozenset[str]] = {}
    for subject in SUBJECTS:
        nodes = observed.nodes_with(metric for metric in subject.reads if metric not in SHARED)
        found[subject.layer] = found.get(subject.layer, frozenset()) | nodes
    return found
