"""From what was read to what is to be reported, job by job. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rankscope_agent.contract.metrics import agent as agent_metrics
from rankscope_agent.contract.metrics import training
from rankscope_analyzers import layers
from rankscope_analyzers.findings.finding import LAYER_NAMES, Finding, Layer, RankLocation
from rankscope_analyzers.fusion.incidents import fuse
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.intake import garbage_collection
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.layers.job_view import JobView, job_view
from rankscope_analyzers.layers.rank_locations import READS as LOCATION_READS
from rankscope_analyzers.layers.rank_locations import RankLocations, by_rank, rank_locations
from rankscope_analyzers.stragglers.diagnosis import Diagnosis, TimingResults
from rankscope_analyzers.stragglers.verdict import Verdict
from rankscope_analyzers.text.name_lists import named, ranks_named

READS = tuple(dict.fromkeys((*layers.READS, *LOCATION_READS, agent_metrics.SNAPSHOT_TIMESTAMP)))
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
        missing: step records that should have been read and were not, as sentences.
        sources: where it was read.
        clocks_ahead: seconds by which nodes' clocks are ahead, of those that are far off.
        of_jobs: notes on one job each, by its name.
    """

    observed: Observed = NO_SERIES
    signals: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    clocks_ahead: Mapping[str, float] = field(default_factory=dict)
    of_jobs: Mapping[str, Sequence[str]] = field(default_factory=dict)


@garbage_collection.paused()
def reports(
    timing: TimingResults, evidence: Evidence, made_unix_seconds: float
) -> tuple[JobReport, ...]:
    """Return a report of each job with step records, or ranks by its series; the worst first.

    Where an analyzer raises, a report lacks what it would have said, and says so.
    """
    reporter = _reporter(timing, evidence, made_unix_seconds)
    return tuple(sorted(map(reporter.report, reporter.names()), key=_weight))


@dataclass(frozen=True, slots=True)
class _Reporter:
    """What is known of all jobs.

    Args:
        known: where their ranks run.
        nodes: for each job, the nodes that have series about it; its ranks may be gone from them.
        errors: of what was to be known of all jobs.
    """

    timing: TimingResults
    judged: Mapping[str, Diagnosis]
    evidence: Evidence
    made_unix_seconds: float
    known: RankLocations
    nodes: Mapping[str, set[str]]
    errors: tuple[AnalysisError, ...]

    def names(self) -> Sequence[str]:
        """Return the names of all jobs."""
        raised = (error.about for error in self.timing.errors)
        return sorted({*self.judged, *self.known.jobs, *self.timing.unusable, *raised})

    def report(self, name: str) -> JobReport:
        """Return a job's report; where that raises, the one that step times give alone."""
        errors = (*(one for one in self.timing.errors if one.about == name), *self.errors)
        unusable = self.timing.unusable.get(name)
        missing = (
            *([unusable] if unusable else ()),
            *map(str, errors),
            *(self.evidence.missing if self._lacks_ranks(name) else ()),
        )
        blank = _blank(name, self.made_unix_seconds, self.evidence, missing, errors)
        made = attempt("report", name, lambda: self._of_everything(blank))
        if not isinstance(made, AnalysisError):
            return made
        poorer = _blamed(blank, made)
        made = attempt("report", name, lambda: self._of_steps(poorer))
        return _blamed(poorer, made) if isinstance(made, AnalysisError) else made

    def _lacks_ranks(self, name: str) -> bool:
        """Whether ranks of a job were not seen, whose step records may be those not read."""
        diagnosis = self.judged.get(name)
        return diagnosis is None or bool(diagnosis.frame.unobserved)

    def _of_everything(self, blank: JobReport) -> JobReport:
        name = blank.job_id
        diagnosis = self.judged.get(name)
        frame = diagnosis.frame if diagnosis else None
        view = job_view(
            name, self.known.of(name, frame), frame.began_unix_seconds if frame else None
        )
        # Of thousands of nodes a job has a few: nothing else is looked at for it.
        seen = self.evidence.observed.on(view.nodes | self.nodes.get(name, set()))
        return _report(blank, view, diagnosis, replace(self.evidence, observed=seen))

    def _of_steps(self, blank: JobReport) -> JobReport:
        name = blank.job_id
        diagnosis = self.judged.get(name)
        view = job_view(name, RankLocations({}).of(name, diagnosis.frame if diagnosis else None))
        alone = replace(self.evidence, observed=NO_SERIES, signals=(), clocks_ahead={})
        return _report(blank, view, diagnosis, alone)


def _reporter(timing: TimingResults, evidence: Evidence, made_unix_seconds: float) -> _Reporter:
    seen = attempt(
        "look", "", lambda: (rank_locations(evidence.observed), _nodes_by_job(evidence.observed))
    )
    known, nodes = (RankLocations({}), {}) if isinstance(seen, AnalysisError) else seen
    judged = {diagnosis.frame.job_id: diagnosis for diagnosis in timing.diagnoses}
    errors = (seen,) if isinstance(seen, AnalysisError) else ()
    return _Reporter(timing, judged, evidence, made_unix_seconds, known, nodes, errors)


def _blank(
    name: str,
    made_unix_seconds: float,
    evidence: Evidence,
    missing: Sequence[str],
    errors: Sequence[AnalysisError],
) -> JobReport:
    """Return a report that says nothing but why."""
    return JobReport(
        job_id=name,
        verdict=None,
        frame=None,
        incidents=(),
        observations=(),
        locations={},
        unobserved=tuple(
            dict.fromkeys((*missing, *evidence.notes, *evidence.of_jobs.get(name, ())))
        ),
        sources=evidence.sources,
        made_unix_seconds=made_unix_seconds,
        missing=tuple(missing),
        errors=tuple(errors),
    )


def _blamed(report: JobReport, *errors: AnalysisError) -> JobReport:
    """Return a report that lacks more, on account of these errors."""
    said = tuple(map(str, errors))
    return replace(
        report,
        unobserved=tuple(dict.fromkeys((*said, *report.unobserved))),
        missing=(*report.missing, *said),
        errors=(*report.errors, *errors),
    )


def _nodes_by_job(observed: Observed) -> Mapping[str, set[str]]:
    """Return the nodes that have anything to say of each job."""
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
    blank: JobReport, view: JobView, diagnosis: Diagnosis | None, evidence: Evidence
) -> JobReport:
    known = [signal for signal in evidence.signals if signal.job_id == view.job_id]
    found = layers.signals_of_job(evidence.observed, view)
    signals = [*known, *_unless_known(found.signals, known)]
    seen = _layers_seen(evidence.observed, view) - found.failed_layers
    judged = fuse(_findings(diagnosis), signals, view.locations, seen)
    verdict = _headed(diagnosis.verdict, judged.incidents) if diagnosis else None
    unobserved = (
        *blank.unobserved,
        *(_no_steps(blank, evidence.observed) if verdict is None else verdict.unobserved),
        *_not_looked(evidence, view),
        *_guessed(view.locations),
        *_clocks(evidence, view),
    )
    made = replace(
        blank,
        verdict=verdict,
        frame=diagnosis.frame if diagnosis else None,
        incidents=judged.incidents,
        observations=judged.observations,
        locations=view.locations,
        unobserved=tuple(dict.fromkeys(unobserved)),
    )
    return _blamed(made, *found.errors)


def _headed(verdict: Verdict, incidents: Sequence[Incident]) -> Verdict:
    """Return a verdict that speaks of the same fault as the first incident of all layers.

    Where that one shows in no step time, neither does the verdict name a cause; what step times
    show of others is among its others.
    """
    if not incidents or incidents[0].timing is verdict.cause:
        return verdict
    first = incidents[0].timing
    found = (*([verdict.cause] if verdict.cause else []), *verdict.others)
    others = tuple(one for one in found if one is not first)
    sure = (first or incidents[0]).confidence
    return replace(verdict, cause=first, others=others, confidence=sure or 0.0)


def _findings(diagnosis: Diagnosis | None) -> tuple[Finding, ...]:
    if diagnosis is None:
        return ()
    verdict = diagnosis.verdict
    return (*([verdict.cause] if verdict.cause else []), *verdict.others)


def _unless_known(signals: Iterable[Finding], known: Sequence[Finding]) -> Iterator[Finding]:
    """Yield signals of kinds of which nothing better is known."""
    kinds = {signal.kind for signal in known}
    return (signal for signal in signals if signal.kind not in kinds)


def _layers_seen(observed: Observed, view: JobView) -> frozenset[Layer]:
    """Return the layers that were seen on every node of a job."""
    return frozenset(
        layer for layer, nodes in layers.nodes_seen(observed).items() if view.nodes <= nodes
    )


def _no_steps(blank: JobReport, observed: Observed) -> tuple[str, ...]:
    if blank.missing:
        return ()  # there are records, or should be: that is said
    living = [
        rank
        for rank, series in by_rank(observed, training.RANK_ALIVE, blank.job_id).items()
        if series.last
    ]
    if living:
        seen = f"{ranks_named(sorted(living))} {'is' if len(living) == 1 else 'are'} seen"
        return (f"{seen}, without steps: no torch.optim optimizer has ended one so far",)
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


def _guessed(locations: Mapping[int, RankLocation]) -> Iterator[str]:
    if any(location.by_local_rank and location.uuid for location in locations.values()):
        yield "whose GPU is whose: ranks are taken to use the GPU of their number on the node"


def _clocks(evidence: Evidence, view: JobView) -> Iterator[str]:
    for node, by in sorted(evidence.clocks_ahead.items()):
        if node in view.nodes:
            yield f"the clock of node {node} is {abs(by):.0f} s {'ahead' if by > 0 else 'behind'}"
