"""Build the reports of all jobs from what was read. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rankscope_agent.contract.metrics import agent as agent_metrics
from rankscope_agent.contract.metrics import training
from rankscope_agent.contract.shards import WHOLE, Shard
from rankscope_agent.contract.stalls import RankStall
from rankscope_analyzers import layers
from rankscope_analyzers.findings.finding import (
    LAYER_NAMES,
    Finding,
    GpuUnknown,
    Layer,
    RankLocation,
)
from rankscope_analyzers.fusion.ended_jobs import end_of, marked, of_processes_ended, with_end
from rankscope_analyzers.fusion.incidents import by_urgency, fuse
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.hangs.threshold import HANG_AFTER_SECONDS
from rankscope_analyzers.intake import garbage_collection, readable_values
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.layers import convergence, other_jobs, pod_status
from rankscope_analyzers.layers.hang import HANG
from rankscope_analyzers.layers.job_view import JobView, job_view
from rankscope_analyzers.layers.pace import pace_of_frame
from rankscope_analyzers.layers.page_findings import PageFindings
from rankscope_analyzers.layers.rank_locations import READS as LOCATION_READS
from rankscope_analyzers.layers.rank_locations import RankLocations, by_rank, rank_locations
from rankscope_analyzers.profiles import stacks
from rankscope_analyzers.profiles.stacks import GroupedStacks
from rankscope_analyzers.stragglers.diagnosis import Diagnosis, TimingResults
from rankscope_analyzers.stragglers.verdict import Verdict
from rankscope_analyzers.text.name_lists import named, ranks_named

READS = tuple(dict.fromkeys((*layers.READS, *LOCATION_READS, agent_metrics.SNAPSHOT_TIMESTAMP)))
"""All series that reports need."""

WITH_JOB_ID = tuple(metric for metric in READS if "job_id" in metric.labels)
"""Series with a label for the job."""

PROBE_FILE = "/rankscope_probe.py"
"""Wrappers between a program and the collectives that it waits in."""

NO_SERIES = Observed({})

UNKNOWN_GPUS: Mapping[GpuUnknown, str] = {
    "contested": "others on their nodes, or pods, have GPUs, too, so that local ranks do not tell",
    "partition": "a MIG device does not say which GPU it is a part of",
}

EXPECTED_LAYERS: tuple[Layer, ...] = ("gpu", "link", "host", "kernel", "pod")
"""Layers that every node of a cluster should have; NCCL's logs depend on the job's settings."""


@dataclass(frozen=True, slots=True)
class JobEvidence:
    """What was read in addition to step records.

    Args:
        observed: series of the nodes.
        findings: about jobs, from sources other than series.
        notes: what could not be read, as sentences.
        missing: step records that could not be read, as sentences.
        sources: where it was read.
        clocks_ahead: seconds by which nodes' clocks are ahead, for those that are far off.
        of_jobs: notes on single jobs, by name.
        stalls: the stacks and collectives of ranks that end no steps, by job.
        of_pages: earlier conclusions from the same series.
    """

    observed: Observed = NO_SERIES
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    clocks_ahead: Mapping[str, float] = field(default_factory=dict)
    of_jobs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    stalls: Mapping[str, Sequence[RankStall]] = field(default_factory=dict)
    of_pages: PageFindings = field(default_factory=PageFindings, repr=False, compare=False)


@garbage_collection.paused()
def reports(
    timing: TimingResults,
    evidence: JobEvidence,
    made_unix_seconds: float,
    asked: str | None = None,
    hang_after_seconds: float = HANG_AFTER_SECONDS,
    shard: Shard = WHOLE,
) -> tuple[JobReport, ...]:
    """Return a report on each job with step records, ranks or pods in its series; the worst first.

    If an analyzer raises, the report lacks that analyzer's findings and says so.

    Args:
        timing: what step records show.
        evidence: what was read in addition to them.
        made_unix_seconds: now.
        asked: a job that gets a report if any series is about it, even one whose pods failed long
            ago.
        hang_after_seconds: least time without a step after which a job is called hung.
        shard: the jobs to report on.
    """
    reporter = replace(
        _reporter(timing, evidence, made_unix_seconds), hang_after_seconds=hang_after_seconds
    )
    names = {*reporter.names(), *(name for name in reporter.nodes if name == asked)}
    own = filter(shard.has, sorted(names))
    return tuple(sorted(map(reporter.report, own), key=_sort_key))


@dataclass(frozen=True, slots=True)
class _Reporter:
    """Builds the reports of all jobs.

    Args:
        known: where their ranks run.
        nodes: for each job, the nodes with series about it, even if its ranks have left them.
        with_pods: jobs with pods now, or with failures within an hour, even without known ranks.
        errors: raised while the data of all jobs was prepared.
        hang_after_seconds: as in `reports`.
    """

    timing: TimingResults
    judged: Mapping[str, Diagnosis]
    evidence: JobEvidence
    made_unix_seconds: float
    known: RankLocations
    nodes: Mapping[str, set[str]]
    with_pods: frozenset[str]
    errors: tuple[AnalysisError, ...]
    hang_after_seconds: float = HANG_AFTER_SECONDS

    def names(self) -> Sequence[str]:
        """Return the names of all jobs."""
        raised = (error.about for error in self.timing.errors)
        return sorted(
            {*self.judged, *self.known.jobs, *self.timing.unusable, *raised, *self.with_pods}
        )

    def report(self, name: str) -> JobReport:
        """Return a job's report; if an analyzer raises, the report from step times alone."""
        errors = (*(one for one in self.timing.errors if one.about == name), *self.errors)
        unusable = self.timing.unusable.get(name)
        missing = (
            *([unusable] if unusable else ()),
            *map(str, errors),
            *(self.evidence.missing if self._lacks_ranks(name) else ()),
        )
        blank = _blank(name, self.made_unix_seconds, self.evidence, missing, errors)
        report = attempt("report", name, lambda: self._full_report(blank))
        if not isinstance(report, AnalysisError):
            return report
        reduced = _with_errors(blank, report)
        report = attempt("report", name, lambda: self._step_report(reduced))
        return _with_errors(reduced, report) if isinstance(report, AnalysisError) else report

    def _lacks_ranks(self, name: str) -> bool:
        """Return True if ranks of a job are unobserved: the missing records may be theirs."""
        diagnosis = self.judged.get(name)
        return diagnosis is None or diagnosis.frame.unobserved_count > 0

    def _full_report(self, blank: JobReport) -> JobReport:
        name = blank.job_id
        diagnosis = self.judged.get(name)
        frame = diagnosis.frame if diagnosis else None
        view = job_view(
            name, self.known.of(name, frame), frame.began_unix_seconds if frame else None
        )
        # Only the job's own nodes, a few of thousands, are evaluated.
        seen = self.evidence.observed.on(view.nodes | self.nodes.get(name, set()))
        view = replace(
            view,
            ended_step_unix_seconds=frame.ended_unix_seconds if frame else None,
            now_unix_seconds=self.made_unix_seconds,
            pace=pace_of_frame(frame) if frame else None,
            first_step_seconds=self.timing.first_steps.get(name),
            hang_after_seconds=self.hang_after_seconds,
            stalls={stall.rank: stall for stall in self.evidence.stalls.get(name, ())},
            others=other_jobs.outside_of_pods(seen, name),
        )
        return _report(blank, view, diagnosis, replace(self.evidence, observed=seen))

    def _step_report(self, blank: JobReport) -> JobReport:
        name = blank.job_id
        diagnosis = self.judged.get(name)
        view = job_view(name, RankLocations({}).of(name, diagnosis.frame if diagnosis else None))
        alone = replace(self.evidence, observed=NO_SERIES, findings=(), clocks_ahead={})
        return _report(blank, view, diagnosis, alone)


def _reporter(timing: TimingResults, evidence: JobEvidence, made_unix_seconds: float) -> _Reporter:
    seen = attempt("look", "", lambda: _known(evidence))
    known, nodes, with_pods = (
        (RankLocations({}), {}, frozenset[str]()) if isinstance(seen, AnalysisError) else seen
    )
    judged = {diagnosis.frame.job_id: diagnosis for diagnosis in timing.diagnoses}
    errors = (seen,) if isinstance(seen, AnalysisError) else ()
    return _Reporter(timing, judged, evidence, made_unix_seconds, known, nodes, with_pods, errors)


def _known(
    evidence: JobEvidence,
) -> tuple[RankLocations, Mapping[str, set[str]], frozenset[str]]:
    observed = evidence.observed
    located = evidence.of_pages.locations(rank_locations, observed)
    return located, _nodes_by_job(observed), pod_status.jobs_with_pods(observed)


def _blank(
    name: str,
    made_unix_seconds: float,
    evidence: JobEvidence,
    missing: Sequence[str],
    errors: Sequence[AnalysisError],
) -> JobReport:
    """Return a report without findings that states the reasons."""
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


def _with_errors(report: JobReport, *errors: AnalysisError) -> JobReport:
    """Return a report with these errors added."""
    sentences = tuple(map(str, errors))
    return replace(
        report,
        unobserved=tuple(dict.fromkeys((*sentences, *report.unobserved))),
        missing=(*report.missing, *sentences),
        errors=(*report.errors, *errors),
    )


def _nodes_by_job(observed: Observed) -> Mapping[str, set[str]]:
    """Return the nodes with series about each job."""
    nodes: dict[str, set[str]] = defaultdict(set)
    for metric in WITH_JOB_ID:
        for series in observed.of(metric):
            nodes[series.labels.get("job_id", "")].add(series.node)
    return nodes


def _sort_key(job: JobReport) -> tuple[bool, bool, float]:
    """Sort key of jobs: those with active incidents first, then by severity and cost."""
    running = [one for one in job.incidents if one.until_unix_seconds is None]
    lost = sum(one.cost.gpu_hours for one in running if one.cost)
    return not running, not any(one.severity == "page" for one in running), -lost


def _report(
    blank: JobReport, view: JobView, diagnosis: Diagnosis | None, evidence: JobEvidence
) -> JobReport:
    known = [finding for finding in evidence.findings if finding.job_id == view.job_id]
    from_layers = layers.findings_of_job(evidence.observed, view, evidence.of_pages)
    findings = [*known, *_unless_known(from_layers.findings, known)]
    seen = _layers_seen(evidence.observed, view) - from_layers.failed_layers
    # A hang costs all of the time, slow steps only a part.
    hung = [finding for finding in findings if finding.kind == HANG]
    rest = [finding for finding in findings if finding.kind != HANG]
    active = [one for one in _findings(diagnosis) if one.until_unix_seconds is None]
    at = end_of(diagnosis, rest, blank.made_unix_seconds)
    if at is not None:
        diagnosis = with_end(diagnosis, at) if diagnosis else None
        rest = of_processes_ended(rest, at)
    judged = fuse((*hung, *_findings(diagnosis)), rest, view.locations, seen)
    if at is not None:
        incidents = sorted(marked(judged.incidents, active, at), key=by_urgency)
        judged = replace(judged, incidents=tuple(incidents))
    verdict = _aligned(diagnosis.verdict, judged.incidents) if diagnosis else None
    unobserved = (
        *blank.unobserved,
        *(_no_steps(blank, evidence.observed) if verdict is None else verdict.unobserved),
        *_not_observed(evidence, view),
        *readable_values.sentences(evidence.observed.unread, view.job_id),
        *_guessed_gpus(view.locations),
        *_clocks(evidence, view),
    )
    report = replace(
        blank,
        verdict=verdict,
        frame=diagnosis.frame if diagnosis else None,
        incidents=judged.incidents,
        observations=judged.observations,
        locations=view.locations,
        stacks=_stacks(view) if any(one.stands for one in judged.incidents) else None,
        unobserved=tuple(dict.fromkeys(unobserved)),
    )
    stands = attempt(
        "layer", view.job_id, lambda: convergence.status(findings, evidence.observed, view.job_id)
    )
    if isinstance(stands, AnalysisError):
        return _with_errors(report, *from_layers.errors, stands)
    return _with_errors(replace(report, convergence=stands), *from_layers.errors)


def _stacks(view: JobView) -> GroupedStacks | None:
    """Return the call stacks of a job's ranks, without the probe's own frames."""
    known = {
        rank: [frame for frame in stall.stack if not frame.file.endswith(PROBE_FILE)]
        for rank, stall in view.stalls.items()
        if stall.stack
    }
    return stacks.group(known, {*view.locations, *view.stalls}) if known else None


def _aligned(verdict: Verdict, incidents: Sequence[Incident]) -> Verdict:
    """Return a verdict on the same fault as the first incident of all layers.

    If step times do not show that incident, the verdict names no cause; findings of step times that
    belong to other incidents are among its others.
    """
    if not incidents or incidents[0].timing is verdict.cause:
        return verdict
    first = incidents[0].timing
    findings = (*([verdict.cause] if verdict.cause else []), *verdict.others)
    others = tuple(one for one in findings if one is not first)
    confidence = (first or incidents[0]).confidence
    return replace(verdict, cause=first, others=others, confidence=confidence or 0.0)


def _findings(diagnosis: Diagnosis | None) -> tuple[Finding, ...]:
    if diagnosis is None:
        return ()
    verdict = diagnosis.verdict
    return (*([verdict.cause] if verdict.cause else []), *verdict.others)


def _unless_known(findings: Iterable[Finding], known: Sequence[Finding]) -> Iterator[Finding]:
    """Yield findings whose kind is not among the known ones."""
    kinds = {finding.kind for finding in known}
    return (finding for finding in findings if finding.kind not in kinds)


def _layers_seen(observed: Observed, view: JobView) -> frozenset[Layer]:
    """Return the layers that were observed on every node of a job."""
    return frozenset(
        layer for layer, nodes in layers.nodes_seen(observed).items() if view.nodes <= nodes
    )


def _no_steps(blank: JobReport, observed: Observed) -> tuple[str, ...]:
    if blank.missing:
        return ()  # there are records, or should be: already reported
    alive = by_rank(observed, training.RANK_ALIVE, blank.job_id)
    if not alive:
        return (
            "no step records: no sign that the probe is loaded (rankscope doctor says more):"
            " without the probe it is unknown which rank waits for which",
        )
    return (
        f"steps of {ranks_named(sorted(alive))}, which have the probe: no torch.optim optimizer has"
        " finished a step; loops without one call rankscope_probe.step() at the end of each",
    )


def _not_observed(evidence: JobEvidence, view: JobView) -> Iterator[str]:
    if not evidence.observed.by_node:
        yield "GPUs, links, kernel logs and hosts: only step records were given"
        return
    for layer, nodes in layers.nodes_seen(evidence.observed).items():
        blind = sorted(view.nodes - nodes)
        if blind and layer in EXPECTED_LAYERS:
            yield f"{LAYER_NAMES[layer]} of {named(blind, 'node')}"
    yield from other_jobs.unattributed(evidence.observed, view)


def _guessed_gpus(locations: Mapping[int, RankLocation]) -> Iterator[str]:
    if any(location.by_local_rank and location.uuid for location in locations.values()):
        yield "which rank uses which GPU: local rank n is assumed to use GPU n"
    for reason, sentence in UNKNOWN_GPUS.items():
        ranks = [rank for rank, location in locations.items() if location.gpu_unknown == reason]
        if ranks:
            yield f"which GPU belongs to {ranks_named(ranks)}: {sentence}"


def _clocks(evidence: JobEvidence, view: JobView) -> Iterator[str]:
    for node, by in sorted(evidence.clocks_ahead.items()):
        if node in view.nodes:
            yield f"the clock of node {node} is {abs(by):.0f} s {'ahead' if by > 0 else 'behind'}"
