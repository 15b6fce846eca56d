"""The textual parts of a job's report, which work without scripts and in print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rankscope_analyzers.findings.finding import LAYER_NAMES, Evidence, Finding, Where
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.reports import job_summary, stack_table, verdict_remarks
from rankscope_analyzers.reports.job_summary import EvidenceLine
from rankscope_analyzers.reports.report_page.elements import Html, element, join
from rankscope_analyzers.text import runbooks
from rankscope_analyzers.text.sanitize import name
from rankscope_analyzers.text.wording import clock, period, value

MOST_LISTED = 50
"""Incidents, observations or sources in one list; --json has all of them."""

SEVERITY_WORDS = {"page": "page: act now", "ticket": "ticket: can wait"}


def answer(report: JobReport) -> Html:
    """Return the headline with the cost, the confidence and the action."""
    first = report.incidents[0] if report.incidents else None
    return element(
        "div",
        element("p", SEVERITY_WORDS[first.severity], class_=f"severity {first.severity}")
        if first
        else element("p", "no incident", class_="severity none"),
        element("p", job_summary.headline(report), class_="headline"),
        _facts(report, first),
        _what_to_do(first) if first else None,
        class_="answer",
    )


def _facts(report: JobReport, first: Incident | None) -> Html:
    rows: list[tuple[str, Html | str]] = []
    if first:
        rows.append((job_summary.costs(first).capitalize(), job_summary.cost(first)))
        rows.append(("Seen by", ", ".join(LAYER_NAMES[layer] for layer in first.layers)))
    sure = job_summary.confidence(report)
    if sure is not None:
        rows.append(("Confidence", _meter(sure)))
    if report.verdict:
        median = report.verdict.median_step_seconds
        pace = f", median step {value(median, 'seconds')}" if median is not None else ""
        ranks = f"{len(report.verdict.ranks)} ranks, {report.verdict.steps} steps judged"
        rows.append(("Judged by", f"{ranks}{pace}"))
    return element(
        "dl", *(join([element("dt", term), element("dd", sentences)]) for term, sentences in rows)
    )


def _meter(sure: float) -> Html:
    width = max(0.0, min(1.0, sure)) * 100
    bar = element(
        "svg",
        element("rect", x=0, y=0, width=100, height=8, rx=4, class_="rest"),
        element("rect", x=0, y=0, width=round(width, 1), height=8, rx=4, class_="share"),
        viewBox="0 0 100 8",
        class_="meter",
        aria_hidden="true",
    )
    return join([f"{sure:.2f} of 1 ", bar])


def _what_to_do(incident: Incident) -> Html:
    runbook = incident.runbook
    return element(
        "div",
        element("h3", "What to do"),
        element("p", incident.action),
        element("p", element("a", f"Runbook: {name(runbook)}", href=f"#runbook-{name(runbook)}"))
        if runbooks.text(runbook) is not None
        else None,
        class_="action",
    )


def incidents(report: JobReport) -> Html | None:
    """Return the list of all incidents, the most costly first."""
    if not report.incidents:
        return None
    shown = report.incidents[:MOST_LISTED]
    return section(
        "Incidents",
        element("ol", *map(_incident, shown), class_="incidents"),
        _more(len(report.incidents) - len(shown)),
    )


def _incident(incident: Incident) -> Html:
    explained = job_summary.explained(incident)
    return element(
        "li",
        element("strong", _kind(incident)),
        " ",
        job_summary.sentence(incident),
        element(
            "p",
            f"{job_summary.costs(incident).capitalize()}: "
            f"{job_summary.cost(incident).rstrip('.')}."
            f" Confidence {incident.confidence:.2f}.",
            class_="note",
        ),
        element("ul", *map(_explained, explained[:MOST_LISTED]), class_="explained")
        if explained
        else None,
    )


def _explained(finding: Finding) -> Html:
    return element("li", f"{finding.seen_by}: {finding.summary}")


def evidence(report: JobReport) -> Html | None:
    """Return all layers' measurements of each incident, with their sources."""
    if not report.incidents:
        return None
    several = len(report.incidents) > 1
    parts = [
        join(
            [
                element("h4", f"{number}. {_kind(incident)}") if several else None,
                _measured(incident),
            ]
        )
        for number, incident in enumerate(report.incidents[:MOST_LISTED], 1)
    ]
    return section("Evidence", *parts)


def _measured(incident: Incident) -> Html:
    headers = ("layer", "measured", "culprit", "compared with", "what it is", "read from")
    rows = map(_evidence_row, job_summary.evidence(incident)[:MOST_LISTED])
    return _table(headers, list(rows), "evidence")


def _kind(incident: Incident) -> str:
    return incident.cause.kind.replace("_", " ")


def _evidence_row(line: EvidenceLine) -> Html:
    one = line.measured
    return element(
        "tr",
        element("th", line.layer, scope="row"),
        element("td", element("code", one.source) if one else "seen"),
        element("td", _observed(one), class_="number"),
        element("td", value(one.expected, one.unit) if one else "", class_="number"),
        element("td", line.meaning),
        element("td", element("code", line.source) if line.source else "-", class_="query"),
    )


def _observed(one: Evidence | None) -> str:
    return value(one.observed, one.unit) if one else ""


def observations(report: JobReport) -> Html | None:
    """Return observations without an effect."""
    seen = job_summary.harmless(report)
    if not seen:
        return None
    rows = [_observation(finding) for finding in seen[:MOST_LISTED]]
    return section(
        "Also seen, harmless so far",
        _table(("layer", "where", "what", "when"), rows, "observations"),
        _more(len(seen) - len(rows)),
    )


def remarks(report: JobReport) -> Html | None:
    """Return the verdict's other remarks."""
    sentences = verdict_remarks.remarks(report.verdict) if report.verdict else ()
    return (
        section("Also worth knowing", element("ul", *(element("li", one) for one in sentences)))
        if sentences
        else None
    )


def _observation(finding: Finding) -> Html:
    return element(
        "tr",
        element("th", finding.seen_by, scope="row"),
        element("td", location(finding.where)),
        element("td", finding.summary),
        element("td", period(finding.since_unix_seconds, finding.until_unix_seconds) or "-"),
    )


def location(where: Where) -> str:
    """Return in a few words what a finding is about."""
    if where.whole_job:
        return "the whole job"
    parts = (
        ("rank", tuple(map(str, where.ranks))),
        ("node", where.nodes),
        ("GPU", where.gpus or where.uuids),
        ("device", where.devices),
    )
    return ", ".join(
        f"{word} {' '.join(map(name, of[:3]))}{' ...' if len(of) > 3 else ''}"
        for word, of in parts
        if of
    )


def unobserved(report: JobReport) -> Html:
    """Return what could not be seen; that nothing is missing is stated too."""
    sentences: Iterable[Html] = (element("li", one) for one in report.unobserved[:MOST_LISTED])
    return section(
        "What could not be seen",
        element("ul", *sentences)
        if report.unobserved
        else element("p", "Nothing that was looked for."),
        _more(len(report.unobserved) - MOST_LISTED),
    )


def origin(report: JobReport) -> Html:
    """Return when the report was made and from what."""
    read = report.sources[:MOST_LISTED]
    return element(
        "footer",
        element("p", f"Made {clock(report.made_unix_seconds)} from:"),
        element("ul", *(element("li", element("code", one)) for one in read)),
        _more(len(report.sources) - len(read)),
    )


def section(title: str, *children: Html | None, class_: str | None = None) -> Html:
    """Return a titled part of a job's report."""
    return element("section", element("h3", title), *children, class_=class_)


def _table(headers: Sequence[str], rows: Sequence[Html], class_: str) -> Html:
    header_row = element("tr", *(element("th", text, scope="col") for text in headers))
    table = element("table", element("thead", header_row), element("tbody", *rows), class_=class_)
    # A wide table scrolls by itself; the keyboard reaches it too.
    return element(
        "div", table, class_="scroll", tabindex=0, role="region", aria_label=f"table of {class_}"
    )


def _more(count: int) -> Html | None:
    return element("p", f"{count} more in --json.", class_="note") if count > 0 else None


def stacks(report: JobReport) -> Html | None:
    """Return the stacks of a hung job's ranks, suspects first."""
    if report.stacks is None:
        return None
    heads = (element("th", cell, scope="col") for cell in stack_table.COLUMNS)
    rows = (
        element("tr", *(element("td", cell) for cell in row))
        for row in stack_table.rows(report.stacks)
    )
    table = element("table", element("tr", *heads), *rows)
    return section("Where ranks stand", element("p", stack_table.title(report.stacks)), table)
