"""From what was read to what is to be reported, job by job. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rankscope_agent.contract.metrics import agent as agent_metrics
from rankscope_analyzers import layers
from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.findings.signals import LAYER_NAMES, Layer, RankPlace, Signal
from rankscope_analyzers.fusion.incidents import fuse
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.intake import cycle_search
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.layers.job_view import JobView, job_view
from rankscope_analyzers.layers.places import READS as PLACE_READS
from rankscope_analyzers.layers.places import whereabouts
from rankscope_analyzers.stragglers.diagnosis import Diagnosis
from rankscope_analyzers.text.name_lists import named

READS = tuple(dict.fromkeys((*layers.READS, *PLACE_READS, agent_metrics.SNAPSHOT_TIMESTAMP)))
"""All series that a report is made of."""

NAMING_JOBS = tuple(metric for metric in READS if "job_id" in metric.labels)
"""Those that say of which job they are."""

NO_SERIES = Observed({})

EXPECTED_LAYERS: tuple[Layer, ...] = ("gpu", "link", "host", "kernel", "pod")
"""Layers that every node of a cluster should show; NCCL's logs speak only if a job lets them."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was read beside step records.

    Args:
        observed: series of the nodes.
        signals: of jobs, from sources other than series.
        notes: what could not be read, as sentences.
        sources: where it was read.
        clocks_ahead: seconds by which nodes' clocks are ahead, of those that are far off.
    """

    observed: Observed = NO_SERIES
    signals: tuple[Signal, ...] = ()
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    clocks_ahead: Mapping[str, float] = field(default_factory=dict)


@cycle_search.put_off()
def reports(
    diagnoses: Iterable[Diagnosis], evidence: Evidence, made_unix_seconds: float
) -> tuple[JobReport, ...]:
    """Return a report of each job with step records, or ranks by its series; the worst first."""
    known = whereabouts(evidence.observed)
    judged = {diagnosis.frame.job_id: diagnosis for diagnosis in diagnoses}
    told = _nodes_told(evidence.observed)
    made = []
    for name in sorted({*judged, *known.jobs}):
        diagnosis = judged.get(name)
        view = job_view(name, known.of(name, diagnosis.frame if diagnosis else None))
        # Of thousands of nodes a job has a few: nothing else is looked at for it.
        seen = evidence.observed.on(view.nodes | told.get(name, frozenset()))
        made.append(_report(view, diagnosis, replace(evidence, observed=seen), made_unix_seconds))
    return tuple(sorted(made, key=_weight))


def _nodes_told(observed: Observed) -> Mapping[str, set[str]]:
    """Return the nodes that have anything to say of each job; its ranks may be gone from them."""
    found: dict[str, set[str]] = defaultdict(set)
    for metric in NAMING_JOBS:
        for series in observed.of(metric):
            found[series.labels.get("job_id", "")].add(series.node)
    return found


def _weight(job: JobReport) -> tuple[bool, bool, float]:
    """Order jobs: those with something wrong now first, then by what that costs."""
    running = [one for one in job.incidents if one.until_unix_seconds is None]
    lost = sum(one.cost.gpu_hours for one in running if one.cost)
    return not running, not any(one.severity == "page" for one in running), -lost


def _report(
    view: JobView, diagnosis: Diagnosis | None, evidence: Evidence, made_unix_seconds: float
) -> JobReport:
    job_id, places = view.job_id, view.places
    told = [signal for signal in evidence.signals if signal.job_id == job_id]
    signals = [*told, *_unless_told(layers.signals(evidence.observed, view), told)]
    seen = _layers_seen(evidence.observed, view)
    judged = fuse(_findings(diagnosis), signals, places, seen)
    verdict = diagnosis.verdict if diagnosis else None
    unobserved = (
        *evidence.notes,
        *(_no_steps() if verdict is None else verdict.unobserved),
        *_not_looked(evidence, view),
        *_guessed(places),
        *_clocks(evidence, view),
    )
    return JobReport(
        job_id=job_id,
        verdict=verdict,
        frame=diagnosis.frame if diagnosis else None,
        incidents=judged.incidents,
        observations=judged.observations,
        places=places,
        unobserved=tuple(dict.fromkeys(unobserved)),
        sources=evidence.sources,
        made_unix_seconds=made_unix_seconds,
    )


def _findings(diagnosis: Diagnosis | None) -> tuple[Finding, ...]:
    if diagnosis is None:
        return ()
    verdict = diagnosis.verdict
    return (*([verdict.cause] if verdict.cause else []), *verdict.others)


def _unless_told(signals: Iterable[Signal], told: Sequence[Signal]) -> Iterator[Signal]:
    """Yield signals of kinds of which nothing better is known."""
    kinds = {signal.kind for signal in told}
    return (signal for signal in signals if signal.kind not in kinds)


def _layers_seen(observed: Observed, view: JobView) -> frozenset[Layer]:
    """Return the layers that were seen on every node of a job."""
    return frozenset(
        layer for layer, nodes in layers.nodes_seen(observed).items() if view.nodes <= nodes
    )


def _no_steps() -> tuple[str, ...]:
    return (
        "no step records: without the probe in the job nobody knows which rank waits for which",
    )


def _not_looked(evidence: Evidence, view: JobView) -> Iterator[str]:
    if not evidence.observed.by_node:
        yield "GPUs, links, kernel logs and hosts: only step records were given"
        return
    for layer, nodes in layers.nodes_seen(evidence.observed).items():
        blind = sorted(view.nodes - nodes)
        if blind and layer in EXPECTED_LAYERS:
            yield f"{LAYER_NAMES[layer]} of {named(blind, 'node')}"


def _guessed(places: Mapping[int, RankPlace]) -> Iterator[str]:
    if any(place.by_local_rank and place.uuid for place in places.values()):
        yield "whose GPU is whose: ranks are taken to use the GPU of their number on the node"


def _clocks(evidence: Evidence, view: JobView) -> Iterator[str]:
    for node, by in sorted(evidence.clocks_ahead.items()):
        if node in view.nodes:
            yield f"the clock of node {node} is {abs(by):.0f} s {'ahead' if by > 0 else 'behind'}"
