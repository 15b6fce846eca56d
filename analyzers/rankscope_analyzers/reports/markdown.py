"""The report as Markdown: an incident timeline for a postmortem, to be edited by people.

Foreign text is escaped, so that a pod's name does not become a link or a table on the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rankscope_analyzers.findings.finding import LAYER_NAMES, Finding
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.reports import job_summary, verdict_remarks
from rankscope_analyzers.reports.job_summary import EvidenceLine
from rankscope_analyzers.text import runbooks
from rankscope_analyzers.text.sanitize import markdown
from rankscope_analyzers.text.wording import clock, period, value

BEFORE = "before the observation"
"""The start of something that was present at the first look."""

MOST_ROWS = 200
"""Rows of one table; a postmortem that needs more needs --json."""


def write(reports: Sequence[JobReport]) -> str:
    """Return the reports one after the other."""
    return "\n".join(line for report in reports for line in _report(report)) + "\n"


def _report(report: JobReport) -> Iterator[str]:
    yield from (f"# Incident report: job {markdown(report.job_id)}", "")
    yield from _summary(report)
    yield from _impact(report)
    yield from _timeline(report)
    yield from _causes(report)
    yield from _ruled_out(report)
    yield from _actions(report)
    yield from _sources(report)


def _summary(report: JobReport) -> Iterator[str]:
    sure = job_summary.confidence(report)
    certainty = "" if sure is None else f" Confidence {sure:.2f} of 1."
    yield from ("## Summary", "", f"{markdown(job_summary.headline(report))}{certainty}", "")


def _impact(report: JobReport) -> Iterator[str]:
    yield from ("## Impact", "")
    verdict = report.verdict
    if verdict is not None:
        yield f"- {len(verdict.ranks)} ranks, {verdict.steps} steps judged"
        if verdict.median_step_seconds is not None:
            yield f"- median step {value(verdict.median_step_seconds, 'seconds')}"
    for incident in report.incidents[:MOST_ROWS]:
        yield f"- {_kind(incident.cause)}: {_costs(incident)}"
    if not report.incidents:
        yield "- no incident, no cost known"
    if verdict is not None:
        whole_run = (*verdict.asides, *verdict_remarks.what_if(verdict))
        yield from (f"- {markdown(sentence)}" for sentence in whole_run)
    if where := job_summary.spent(report):
        yield f"- {where}"
    yield ""


def _kind(finding: Finding) -> str:
    return markdown(finding.kind.replace("_", " "))


def _costs(incident: Incident) -> str:
    spent = incident.cost
    if spent is None:
        return "cost unknown: there are no step times"
    return f"{spent.gpu_hours:.3g} GPU-hours lost, {spent.lost_fraction:.1%} of every step"


def _timeline(report: JobReport) -> Iterator[str]:
    events = sorted(_events(report), key=lambda event: (event[0] is not None, event[0] or 0.0))
    rows = [
        (BEFORE if moment is None else clock(moment), layer, sentences)
        for moment, layer, sentences in events[:MOST_ROWS]
    ]
    yield from ("## Timeline", "")
    yield from _table(("time", "seen by", "what"), rows)
    if report.verdict is not None:
        for sentence in verdict_remarks.clocks(report.verdict):
            yield from (markdown(sentence), "")


def _events(report: JobReport) -> Iterator[tuple[float | None, str, str]]:
    """Return when what began and ended; each finding once, though incidents may share one."""
    own = (
        one
        for incident in report.incidents
        for one in (incident.cause, *incident.findings, *incident.other_causes)
    )
    seen: list[Finding] = []
    for finding in (*own, *report.observations):
        if finding in seen:
            continue
        seen.append(finding)
        layer = finding.seen_by
        yield finding.since_unix_seconds, layer, markdown(finding.summary)
        if finding.until_unix_seconds is not None:
            yield finding.until_unix_seconds, layer, f"over: {markdown(finding.summary)}"
    yield report.made_unix_seconds, "Rankscope", "this report was made"


def _causes(report: JobReport) -> Iterator[str]:
    yield from ("## Root cause and evidence", "")
    if not report.incidents:
        yield from ("None was found.", "")
    for number, incident in enumerate(report.incidents[:MOST_ROWS], 1):
        seen = ", ".join(LAYER_NAMES[layer] for layer in incident.layers)
        yield f"### {number}. {_kind(incident.cause)}"
        yield from ("", markdown(job_summary.sentence(incident)), "")
        explained = job_summary.explained(incident)[:MOST_ROWS]
        yield from (f"- {one.seen_by}: {markdown(one.summary)}" for one in explained)
        yield from ([""] if explained else [])
        yield from (f"Seen by {seen}. Confidence {incident.confidence:.2f} of 1.", "")
        lines = job_summary.evidence(incident)[:MOST_ROWS]
        yield from _table(
            ("layer", "measured", "culprit", "compared with", "what it is", "read from"),
            map(_evidence_row, lines),
        )


def _evidence_row(line: EvidenceLine) -> tuple[str, ...]:
    one = line.measured
    numbers = (value(one.observed, one.unit), value(one.expected, one.unit)) if one else ("", "")
    measured = one.source if one else "seen"
    return (line.layer, *map(markdown, (measured, *numbers, line.meaning, line.source)))


def _ruled_out(report: JobReport) -> Iterator[str]:
    """Describe what does not explain it: harmless observations, and step times' naive answer."""
    yield from ("## Ruled out", "")
    sentences = [
        f"{finding.seen_by}: {markdown(finding.summary)}"
        f" {period(finding.since_unix_seconds, finding.until_unix_seconds)}".rstrip()
        + " (without an effect on the job)"
        for finding in job_summary.harmless(report)
    ]
    if report.verdict is not None:
        sentences += [markdown(one) for one in verdict_remarks.naive(report.verdict)]
    yield from (f"- {one}" for one in sentences[:MOST_ROWS] or ["nothing else was seen"])
    yield from ("", "## Not observed", "")
    unseen = [markdown(one) for one in report.unobserved[:MOST_ROWS]]
    yield from (f"- {one}" for one in unseen or ["nothing"])
    yield ""


def _actions(report: JobReport) -> Iterator[str]:
    yield from ("## Actions", "")
    for incident in report.incidents[:MOST_ROWS]:
        yield f"- [ ] {markdown(incident.action)}{_link(incident.runbook)}"
    if not report.incidents:
        yield "- none"
    yield ""


def _link(name: str) -> str:
    """Return a link to an existing runbook; a foreign name does not become a link."""
    if runbooks.text(name) is None:
        return ""
    return f" Runbook: [{markdown(name)}]({runbooks.path(name)})"


def _sources(report: JobReport) -> Iterator[str]:
    yield from ("## Sources", "")
    yield from (f"- {markdown(one)}" for one in report.sources[:MOST_ROWS])
    yield from (f"- made {clock(report.made_unix_seconds)}", "")


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headers)} |"
    yield f"|{'---|' * len(headers)}"
    for row in rows:
        yield f"| {' | '.join(cell or '-' for cell in row)} |"
    yield ""
