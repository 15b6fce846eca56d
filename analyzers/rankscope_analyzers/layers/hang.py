"""A job whose processes live and that makes no steps: since when, and whom the others wait for.

Times are by the clock of the agent that saw the steps, never by ours. An old page shows nothing
about now: ranks whose agents do not answer are left out, and a job of which no agent answers is no
hang. A checkpoint, an evaluation or a compilation that a probe marks may take longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rankscope_agent.contract.metrics import agent, pods, starvation, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Cost, Evidence, Finding, Where
from rankscope_analyzers.hangs.suspects import blame, newest_call, since_newest_call, waiting
from rankscope_analyzers.hangs.threshold import HANG_AFTER_SECONDS
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.layers import hang_evidence, pauses
from rankscope_analyzers.layers.earlier_ranks import earlier_ranks
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.pace import LONG_PAUSES, Pace, pace_of_pages
from rankscope_analyzers.layers.rank_locations import by_rank
from rankscope_analyzers.layers.rank_progress import Progress, read
from rankscope_analyzers.layers.series_findings import series_finding
from rankscope_analyzers.text.name_lists import ranks_named
from rankscope_analyzers.text.wording import UNKNOWN, age, clock, duration

READS: tuple[Metric, ...] = (
    training.RANK_INFO,
    training.RANK_ALIVE,
    training.RANK_ENDED,
    training.STEPS,
    training.STEP_SECONDS,
    training.LAST_STEP,
    training.LAST_STEP_TIMESTAMP,
    training.LAST_STEP_SECONDS,
    *pauses.READS,
    *hang_evidence.READS,
    starvation.RANK_STOPPED,
    pods.RANK_STARTED,
    agent.SNAPSHOT_TIMESTAMP,
)

HANG, PAUSE = "hang", "long_pause"
KINDS = frozenset((HANG, PAUSE))

SURE, FIRST_STEP_SURE = 0.9, 0.7
"""Confidence: that nothing moves is measured, but a first step may simply be slow."""

RECORDER = "Flight Recorder"
"""Source of the last collective: PyTorch, not a series of ours."""

STOPPED_SECONDS = 10.0
"""If a signal has stopped a rank there is no reason to wait longer: no job does that on purpose."""

CLOCKS_SECONDS = 60.0
"""Added if an agent does not report its own time: clocks may differ by this much unnoticed."""

FIRST_STEP_SECONDS = 600.0
"""A first step loads data and weights, builds communicators and compiles: minutes, not ten."""

START_SECONDS = 60.0
"""Programs are not called hung before they have had this long to be loaded, whatever limit is
set."""


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield the hang of a job, if there is one."""
    earlier = earlier_ranks(observed, job.job_id)
    known = read(observed, job.job_id, job.now_unix_seconds)
    ranks = [rank for rank in known if rank.rank not in earlier]
    living = [rank for rank in ranks if rank.alive]
    if living and len(living) * 2 < sum(rank.known for rank in ranks):
        return  # most ranks are done: the rest is cleaning up, or is reported as what ended the job
    if not job.open_spans:
        job = replace(job, open_spans=tuple(pauses.open_spans(observed, job.job_id, living)))
    pace = job.pace or pace_of_pages(observed, job.job_id)
    stepped = [rank for rank in living if rank.quiet is not None]
    if stepped:
        ended = pauses.newest_end(observed, job, living)
        yield from _standing(observed, job, ranks, stepped, pace, ended)
    else:
        yield from _starting(observed, job, ranks, pace)


def ends_steps(finding: Finding) -> bool:
    """Return True if a finding means that a job makes no steps any longer, having made some."""
    sources = {evidence.source for evidence in finding.evidence}
    return finding.kind == HANG and training.LAST_STEP_TIMESTAMP.name in sources


def _standing(
    observed: Observed,
    job: JobView,
    ranks: Sequence[Progress],
    stepped: Sequence[Progress],
    pace: Pace,
    span_ended: float | None,
) -> Iterator[Finding]:
    """Report that no rank ends steps any longer; the time of a marked span does not count."""
    quietest = min(stepped, key=lambda rank: rank.quiet or 0.0)
    quiet, last = quietest.quiet or 0.0, quietest.last_unix_seconds
    idle = min(quiet, max(0.0, quietest.now_unix_seconds - (span_ended or 0.0)))
    stopped = [rank.rank for rank in ranks if rank.stopped]
    allowed = pace.allowed(STOPPED_SECONDS if stopped else job.hang_after_seconds)
    allowed += 0.0 if quietest.dated else CLOCKS_SECONDS
    if idle < allowed or pauses.exchanges(job, allowed):
        return
    who, why = _awaited(observed, job, ranks, stopped, last or 0.0)
    marked = pauses.within_span(job, quietest, allowed)
    works = idle < pauses.WORKING_FACTOR * allowed and pauses.works(job.stalls, who)
    usual = UNKNOWN if pace.usual is None else duration(pace.usual)
    sentence = f"no step since {clock(last)} ({age(quiet)} ago), usual step {usual}{why}"
    evidence = Evidence(
        training.LAST_STEP_TIMESTAMP.name,
        idle,
        pace.usual or 0.0,
        "seconds",
        "time without a step",
    )
    if marked or works:
        yield _pause(job, sentence, evidence, last, marked=marked)
        return
    yield _finding(job, who, sentence, evidence, last, len(ranks), SURE)


def _pause(
    job: JobView, sentence: str, evidence: Evidence, since: float | None, *, marked: bool
) -> Finding:
    """Return that nothing moves for a reason that is known: it is no hang yet."""
    reason = "a checkpoint, evaluation or the like goes on" if marked else "a rank is at work"
    sentence = f"{sentence}; no hang so far, as {reason}"
    return series_finding(PAUSE, "training", job.job_id, Where(), sentence, (evidence,), since)


def _awaited(
    observed: Observed,
    job: JobView,
    ranks: Sequence[Progress],
    stopped: Sequence[int],
    last: float,
) -> tuple[list[int], str]:
    """Return whom the others wait for, at most half of the ranks, and the evidence."""
    gone = [rank.rank for rank in ranks if rank.known and not rank.alive and not rank.starting]
    if stopped or gone:
        return sorted({*stopped, *gone}), ""  # a separate finding reports it
    seen, fault = blame(job.stalls), hang_evidence.by_faults(observed, job, last)
    if fault.ranks and (not seen.ranks or set(seen.ranks) & set(fault.ranks)):
        waits_for = f"; {seen.sentence}" if seen.sentence else ""
        return list(fault.ranks), f"; {fault.why}{waits_for}"
    if seen.sentence and (seen.ranks or waiting(job.stalls)):
        return list(seen.ranks), f"; {seen.sentence}"
    for suspects in (
        hang_evidence.by_ras(observed, job, len(ranks)),
        hang_evidence.by_watchdogs(observed, job, last),
    ):
        if suspects.ranks:
            return list(suspects.ranks), f"; {suspects.why}"
    if seen.sentence:
        return list(seen.ranks), f"; {seen.sentence}"
    return _behind(ranks)


def _behind(ranks: Sequence[Progress]) -> tuple[list[int], str]:
    """Return the ranks that did not end the newest step of the others."""
    steps = {rank.rank: rank.step for rank in ranks if rank.step is not None}
    front = max(steps.values(), default=0.0)
    behind = sorted(rank for rank, step in steps.items() if step < front)
    if not behind or len(behind) * 2 > len(steps):
        return [], ""
    reached = min(steps[rank] for rank in behind)
    return behind, f"; {ranks_named(behind)} ended step {reached:.0f}, the others {front:.0f}"


def _starting(
    observed: Observed, job: JobView, ranks: Sequence[Progress], pace: Pace
) -> Iterator[Finding]:
    """Report processes that live and take no first step: in rendezvous, or setting up groups."""
    if waiting(job.stalls):
        yield from _joined(job, ranks, pace)
        return
    # A ring without any step so far belongs to a program without an optimizer, which is no hang.
    begun = [rank for rank in ranks if rank.starting and (rank.stepped_before or not rank.alive)]
    if not begun:
        return
    newest = max(begun, key=lambda rank: rank.started_unix_seconds or 0.0)
    since = newest.started_unix_seconds or 0.0
    waited = newest.now_unix_seconds - since
    allowed = max(_first_step_seconds(job), START_SECONDS)
    allowed += 0.0 if newest.dated else CLOCKS_SECONDS
    if waited < allowed:
        return
    absent = _absent(observed, job, begun)
    usual = UNKNOWN if pace.usual is None else duration(pace.usual)
    sentence = (
        f"no step since the processes of {ranks_named([rank.rank for rank in begun])} were started"
        f" at {clock(since)} ({age(waited)} ago), usual step {usual}"
    )
    if absent:
        sentence += f"; no process with the probe is seen of {ranks_named(absent)}"
    evidence = Evidence(
        pods.RANK_STARTED.name, waited, allowed, "seconds", "time to the first step"
    )
    yield _finding(job, absent, sentence, evidence, since, len(begun), FIRST_STEP_SURE)


def _joined(job: JobView, ranks: Sequence[Progress], pace: Pace) -> Iterator[Finding]:
    """Report ranks that have connected and wait in a collective before a first step."""
    stalls = job.stalls.values()
    newest, waited = newest_call(stalls), since_newest_call(stalls) or 0.0
    if waited < _first_step_seconds(job):
        return
    seen = blame(job.stalls)
    usual = UNKNOWN if pace.usual is None else duration(pace.usual)
    sentence = (
        f"no step since {clock(newest)} ({age(waited)} ago), when the last collective was"
        f" launched, usual step {usual}; {seen.sentence}"
    )
    evidence = Evidence(
        RECORDER, waited, _first_step_seconds(job), "seconds", "time since the last collective"
    )
    yield _finding(job, seen.ranks, sentence, evidence, newest, len(ranks), FIRST_STEP_SURE)


def _first_step_seconds(job: JobView) -> float:
    """Return how long a first step may take: proportionally longer if the user's limit is longer.

    If it took long before, it may take twice that: models are compiled anew at each start.
    """
    least = FIRST_STEP_SECONDS * job.hang_after_seconds / HANG_AFTER_SECONDS
    return max(least, LONG_PAUSES * (job.first_step_seconds or 0.0))


def _absent(observed: Observed, job: JobView, begun: Sequence[Progress]) -> list[int]:
    """Return the ranks without a process, if they are fewer than those with one."""
    here = {rank.rank for rank in begun}
    infos = by_rank(observed, training.RANK_INFO, job.job_id)
    size = max((_size(info.labels) for rank, info in infos.items() if rank in here), default=0)
    if size >= 2 * len(here):  # also if a label claims millions of ranks
        return []
    absent = sorted(set(range(size)) - here)
    return absent if len(absent) < len(here) else []


def _size(labels: Mapping[str, str]) -> int:
    text = labels.get("world_size", "")
    known = text.isascii() and text.isdigit() and len(text) < 8
    return int(text) if known else 0


def _finding(
    job: JobView,
    who: Sequence[int],
    sentence: str,
    evidence: Evidence,
    since: float | None,
    ranks: int,
    sure: float,
) -> Finding:
    places = tuple(job.locations[rank] for rank in who if rank in job.locations)
    nodes = tuple(dict.fromkeys(place.node for place in places))
    where = Where(nodes=nodes, ranks=tuple(who), culprits=places)
    found = series_finding(HANG, "training", job.job_id, where, sentence, (evidence,), since)
    standing = evidence.observed * max(ranks, len(job.locations))
    return replace(found, cost=Cost(1.0, standing / 3600.0), confidence=sure)
