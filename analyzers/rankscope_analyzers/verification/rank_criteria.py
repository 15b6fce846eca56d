"""Criteria on ranks and steps: all present, one size, at pace, none slow, GPUs busy."""

from __future__ import annotations

import shlex

from rankscope_agent.contract.metrics import gpus
from rankscope_analyzers.fusion.job_report import Incident
from rankscope_analyzers.reports.verdict_remarks import cost_of_differences
from rankscope_analyzers.stragglers.verdict import FULL_COVERAGE_STEPS, MINIMUM_STEPS, Verdict
from rankscope_analyzers.text.name_lists import listed, ranks_named
from rankscope_analyzers.text.wording import duration
from rankscope_analyzers.verification.evidence import Evidence
from rankscope_analyzers.verification.judgement import (
    Judgement,
    broken,
    met,
    not_applicable,
    not_yet,
    unknown,
)

PACE_TOLERANCE = 1.1
"""Tolerance of a step's expected duration: ten percent, more than steps differ by chance."""

SURE = 0.5
"""Confidence from which on "no straggler" counts: with all ranks and times, after 32 steps."""

PROBE = "let the probe into every pod; rankscope doctor says what is missing"


def world_size(evidence: Evidence) -> Judgement:
    """Judge whether all ranks are present and report one size."""
    wanted = evidence.settings.world_size
    sizes = {*evidence.sizes(), *([wanted] if wanted else ())}
    if len(sizes) > 1:
        claimed = listed(sorted(sizes - {wanted} or sizes))
        expected = f"{wanted} on every rank" if wanted else "one size on every rank"
        remedy = "check WORLD_SIZE, --nnodes and leftovers of an earlier attempt"
        return broken(f"ranks report a world size of {claimed}", expected, remedy)
    if ended := evidence.ended:
        seen = f"the {'process' if len(ended) == 1 else 'processes'} of {ranks_named(ended)} ended"
        return broken(seen, "live processes", f"{_logs_command(evidence.report.job_id)} says why")
    if not sizes:
        return _absent(evidence, "no rank of the job is seen", "a rank in every process")
    (size,) = sizes
    lacking = set(range(size)) - evidence.ranks
    if lacking:
        seen = f"{size - len(lacking)} of {size} ranks are seen, without {ranks_named(lacking)}"
        return _absent(evidence, seen, f"all {size}")
    strange = evidence.ranks - set(range(size))
    if strange:
        return broken(
            f"{ranks_named(strange)} beyond a world of {size}",
            f"ranks 0 to {size - 1}",
            "two jobs share one name, or an earlier attempt is still running: rankscope jobs",
        )
    return met(f"{size} ranks, all of them seen")


def _logs_command(job_id: str) -> str:
    """Return the command for errors in a job's logs; those of Kubernetes have a namespace."""
    return f"rankscope logs {shlex.quote(job_id) if '/' in job_id else '--from DIR'} --errors"


def steps(evidence: Evidence) -> Judgement:
    """Judge whether every rank makes steps, and how fast."""
    report, wanted = evidence.report, evidence.settings.step_seconds
    if hung := next((one for one in report.incidents if one.stands), None):
        return broken(hung.summary, "steps that end", hung.action)
    verdict = report.verdict
    made = verdict.steps if verdict else 0
    expected = f"at least {MINIMUM_STEPS} steps after the warm-up, on every rank"
    if verdict is None or report.frame is None or made < MINIMUM_STEPS:
        return _absent(evidence, f"{made} steps to go by", expected)
    if report.frame.unobserved:
        seen = f"no steps of {ranks_named(report.frame.unobserved)}"
        return _absent(evidence, seen, expected)
    pace = verdict.median_step_seconds
    if pace is None:
        return unknown("steps without a duration", expected, PROBE)
    seen = f"{made} steps of {duration(pace)} each"
    if wanted is None:
        return met(f"{seen}; no pace was requested (--step-seconds)")
    if pace > PACE_TOLERANCE * wanted:
        slower = f"{duration(PACE_TOLERANCE * wanted)} at most"
        return broken(seen, slower, "rankscope diagnose shows where the time goes")
    return met(f"{seen}, {duration(wanted)} expected")


def straggler(evidence: Evidence) -> Judgement:
    """Judge whether nothing delays the job, by steps and all other layers."""
    report = evidence.report
    going_on = [one for one in report.incidents if one.until_unix_seconds is None]
    if going_on:
        return _incident(going_on[0])
    verdict = report.verdict
    expected = "every rank's times over a minute or more of steps"
    if verdict is None or verdict.steps < MINIMUM_STEPS:
        return _absent(evidence, "too few steps to compare ranks", expected)
    if len(evidence.ranks) == 1:
        return not_applicable("one rank has no peers to wait for")
    return _confident(verdict, evidence, expected)


def _confident(verdict: Verdict, evidence: Evidence, expected: str) -> Judgement:
    seen = f"no straggler in {verdict.steps} steps, confidence {verdict.confidence:.2f}"
    cost = cost_of_differences(verdict)
    if evidence.report.missing or evidence.unread:
        why = listed([*evidence.report.missing, *evidence.unread])
        return unknown(f"{seen}, but not everything was read: {why}", expected, PROBE)
    if verdict.confidence >= SURE:
        return met(f"{seen}; {cost}" if cost else seen)
    if verdict.steps < FULL_COVERAGE_STEPS:
        return not_yet(seen, expected)
    reasons = [*verdict.unobserved, *([cost] if cost else [])]
    return unknown(f"{seen}: {listed(reasons)}", expected, PROBE)


def _incident(incident: Incident) -> Judgement:
    return broken(incident.summary, "no rank that delays the others", incident.action)


def utilization(evidence: Evidence) -> Judgement:
    """Judge whether the GPUs of all ranks are busy."""
    wanted, held = evidence.settings.utilization, evidence.gpu_ranks
    if not held:
        return not_applicable("no rank is known to use a GPU")
    expected = f"{wanted:.0%} of the time or more on each GPU"
    busy: dict[str, float] = {}
    for series in evidence.observed.of(gpus.GPU_UTILIZATION):
        busy[series.labels.get("uuid", "")] = float(series.values.mean())
    blind = sorted(rank for rank, uuid in held.items() if uuid not in busy)
    blind += sorted(evidence.ranks - set(held))
    if blind:
        remedy = "rankscope gpus shows which GPUs are seen; MIG devices have no utilization"
        return unknown(f"not read for {ranks_named(blind)}", expected, remedy)
    if not evidence.report.verdict or evidence.report.verdict.steps < MINIMUM_STEPS:
        return not_yet("too few steps: GPUs may not have begun", expected)
    idle = sorted(rank for rank, uuid in held.items() if busy[uuid] < wanted)
    least = min(busy[uuid] for uuid in held.values())
    if idle:
        seen = f"{least:.0%} at the lowest, too little on {ranks_named(idle)}"
        return broken(seen, expected, "rankscope diagnose says what they wait for")
    return met(f"{least:.0%} at the lowest, on {len(held)} GPUs")


def _absent(evidence: Evidence, seen: str, expected: str) -> Judgement:
    """Return `not yet`, or `unknown` if what is absent may merely not have been read."""
    unread = [*evidence.report.missing, *evidence.unread]
    if unread:
        return unknown(f"{seen}, but not everything was read: {listed(unread)}", expected, PROBE)
    return not_yet(seen, expected)
