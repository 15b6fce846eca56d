"""The report as one self-contained HTML file that works offline.

Its content security policy lets the browser run only the one script whose hash it lists, and
connect to nothing. Text is in the page itself; the script draws the maps from numbers in a data
block, and sorts the table of ranks.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Any

from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.reports import job_summary
from rankscope_analyzers.reports.report_page import data, maps, runbook_text, sections, topology
from rankscope_analyzers.reports.report_page.elements import Html, element, join
from rankscope_analyzers.text import finite_json
from rankscope_analyzers.text.sanitize import name

SCRIPTS = ("scales.js", "time_axis.js", "heat_map.js", "keyboard.js", "rank_table.js", "page.js")
"""In the order of their dependencies; together they are one script."""


def write(reports: Sequence[JobReport]) -> str:
    """Write the page about these jobs, the most important first."""
    style, script = _asset("style.css"), _script()
    most_bins = data.bins(reports)
    return Template(_asset("page.html")).substitute(
        title=join([_title(reports)]).markup,
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        data=_json([data.job(report, most_bins) for report in reports]),
        contents=_contents(reports).markup,
        jobs=join([_job(report, number) for number, report in enumerate(reports)]).markup,
        runbooks=join([runbook_text.section(_runbooks(reports))]).markup,
    )


def _title(reports: Sequence[JobReport]) -> str:
    if len(reports) == 1:
        return f"Rankscope: {name(reports[0].job_id)}"
    return f"Rankscope: {len(reports)} jobs"


def _contents(reports: Sequence[JobReport]) -> Html:
    """Return the list of jobs; one job needs none."""
    if len(reports) < 2:
        return join([])
    entries = (
        element(
            "li",
            element("a", name(report.job_id), href=f"#job-{number}"),
            ": ",
            job_summary.headline(report),
        )
        for number, report in enumerate(reports)
    )
    return element("nav", element("h2", "Jobs"), element("ul", *entries), aria_label="jobs")


def _job(report: JobReport, number: int) -> Html:
    ident = f"job-{number}"
    drawing = topology.figures(report)
    return element(
        "article",
        element("h2", f"Job {name(report.job_id)}", id=f"{ident}-title"),
        sections.answer(report),
        maps.section(report, ident),
        sections.incidents(report),
        sections.evidence(report),
        sections.stacks(report),
        sections.section("Where it runs", drawing, class_="topology") if drawing else None,
        sections.unobserved(report),
        sections.observations(report),
        sections.remarks(report),
        maps.rank_table(report, ident),
        sections.origin(report),
        id=ident,
        aria_labelledby=f"{ident}-title",
    )


def _runbooks(reports: Sequence[JobReport]) -> list[str]:
    named = (incident.runbook for report in reports for incident in report.incidents)
    return list(dict.fromkeys(runbook for runbook in named if runbook))


def _script() -> str:
    parts = "\n".join(_asset(part) for part in SCRIPTS)
    return f'\n(() => {{\n"use strict";\n{parts}}})();\n'


def _asset(file: str) -> str:
    folder = resources.files("rankscope_analyzers.reports.report_page")
    return (folder / file).read_text(encoding="utf-8")


def _hash(inline: str) -> str:
    """Return the source expression of an inline script or style (CSP level 3, section 2.3.1)."""
    digest = hashlib.sha256(inline.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _json(value: Any) -> str:
    """Return JSON that cannot end the script element: no `<`, so no `</script` or `<!--`."""
    text = finite_json.text(value, separators=(",", ":"))
    return text.replace("<", "\\u003c")
