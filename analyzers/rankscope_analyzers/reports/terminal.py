"""Job reports as text for a terminal: the answer, and the evidence of all layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rankscope_analyzers.findings.finding import LAYER_NAMES, Evidence, Finding
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.reports import job_summary, rank_series, stack_table, verdict_text
from rankscope_analyzers.reports.verdict_remarks import remarks
from rankscope_analyzers.text import runbooks
from rankscope_analyzers.text.name_lists import ranks_named
from rankscope_analyzers.text.sanitize import visible
from rankscope_analyzers.text.shrinking_table import Column, ShrinkingTable
from rankscope_analyzers.text.wording import clock, value

SPARKS = "▁▂▃▄▅▆▇█"

SPARK_BINS = 48
"""Characters of a sparkline: with its label and value it fits into 80 columns."""

SHORT_NAME, LONG_NAME = 28, 52
"""Characters of a measured name that leaves room for its meaning beside it in 80 columns; and of
the longest that stays whole, with its meaning below it: names of metrics are there to be copied."""

LEAST_MEANING = 12
"""Characters below which the meaning of a value is left out."""

MOST_LINES = 8
"""Further incidents, observations or unseen things that are listed; --json has all."""


def show(console: Console, reports: Sequence[JobReport]) -> None:
    """Print reports for people."""
    for report in reports:
        console.print(render(report))


def render(report: JobReport) -> RenderableType:
    """Return the report on one job."""
    parts: list[RenderableType] = [_headline(report)]
    if report.incidents:
        parts.extend(_sparklines(report))
        parts.append(_evidence_table(report.incidents[0]))
        parts.extend(_others(report))
        parts.extend(_other_causes(report))
    if report.stacks is not None:
        parts.append(stack_table.table(report.stacks))
    parts.extend(_observations(report))
    if report.verdict is not None and report.verdict.ranks:
        culprits = job_summary.culprits(report)
        parts.append(verdict_text.rank_table(report.verdict.ranks, culprits))
        parts.extend(Text(visible(sentences), style="dim") for sentences in remarks(report.verdict))
    if where := job_summary.spent(report):
        parts.append(Text(where))
    parts.extend(map(verdict_text.not_seen, report.unobserved[:MOST_LINES]))
    parts.extend(_more(len(report.unobserved), "things were not seen"))
    return Group(*parts)


def _headline(report: JobReport) -> RenderableType:
    body = Text(style="not bold")
    if report.verdict is not None:
        body.append(f"{verdict_text.size(report.verdict)}\n")
    title = verdict_text.title(report.job_id)
    if not report.incidents:
        sure = job_summary.confidence(report)
        clean = sure and not job_summary.doubt(report)
        body.append(
            visible(job_summary.headline(report)), style="bold green" if clean else "bold yellow"
        )
        return Panel(body.append(f" Confidence {sure:.2f}." if sure else ""), title=title)
    first = report.incidents[0]
    colour = "red" if first.until_unix_seconds is None else "yellow"
    body.append(visible(job_summary.ending(report)), style="bold")
    body.append(f"{visible(first.cause.kind)}: ", style=f"bold {colour}")
    body.append(f"{visible(job_summary.answer(report))}\n", style="bold")
    seen = " and ".join(LAYER_NAMES[layer] for layer in first.layers)
    body.append(
        f"It {job_summary.costs(first)} {_lower(job_summary.cost(first))}."
        f" Confidence {first.confidence:.2f}, from {seen}.\n"
    )
    body.append(f"{visible(first.action)} See {runbooks.command(visible(first.runbook))}.")
    return Panel(body, title=title, border_style=colour)


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")


def _sparklines(report: JobReport) -> list[RenderableType]:
    """Return the worst rank's line above its peers', on one scale from zero."""
    # Warm-up steps are so slow that all others would look the same next to them.
    frame = report.frame.usable_only() if report.frame else None
    if frame is None or not len(frame.steps):
        return []
    series = rank_series.of_culprit(frame, report.incidents[0], SPARK_BINS)
    if series is None:
        return []
    both = np.concatenate([series.own, series.peers])
    most = float(both[np.isfinite(both)].max(initial=0.0))
    steps = frame.steps
    table = Table(
        title=f"{series.column}, steps {steps[0]} to {steps[-1]}", title_justify="left", box=None
    )
    for style in ("bold", "", ""):
        table.add_column(style=style, no_wrap=True)
    table.show_header = False
    for label, values, style in (
        (f"rank {series.rank}", series.own, "red"),
        ("its peers", series.peers, "cyan"),
    ):
        newest = value(float(values[-1]), "seconds")
        table.add_row(label, Text(sparkline(values, most), style=style), newest)
    return [table]


def sparkline(values: Floats, most: float) -> str:
    """Return a character for each value between 0 and `most`, a space if there is none."""
    if most <= 0:
        return " " * len(values)
    levels = np.clip(np.ceil(np.nan_to_num(values) / most * len(SPARKS)), 1, len(SPARKS))
    return "".join(
        SPARKS[int(level) - 1] if known else " "
        for level, known in zip(levels, np.isfinite(values), strict=True)
    )


def _evidence_table(incident: Incident) -> Table:
    lines = job_summary.evidence(incident)
    names = [line.measured.source if line.measured else line.source for line in lines]
    longest = max((len(word) for name in names for word in visible(name).split()), default=0)
    apart = longest <= SHORT_NAME
    cells: list[tuple[str, ...]] = []
    for line, name in zip(lines, names, strict=True):
        about = [visible(name), visible(line.meaning)]
        first, *after = about if apart else ["\n".join(filter(None, about))]
        cells.append((visible(line.layer), first, *_numbers(line.measured), *after))
    layers, measured, culprits, expected, *meanings = (
        [Text(cell) for cell in column] for column in zip(*cells, strict=True)
    )
    width = min(longest, LONG_NAME)
    columns = (
        Column("layer", layers),
        Column("measured", measured, least=max(width, 1), fixed=width or None),
        Column("culprit", culprits, is_number=True),
        Column("expected", expected, is_number=True),
        *(Column("what it is", column, least=LEAST_MEANING) for column in meanings),
    )
    optional = (frozenset(("what it is",)), frozenset(("layer",)))
    title = "Evidence of all layers"
    return ShrinkingTable(columns, optional, [""] * len(cells), title)


def _numbers(measured: Evidence | None) -> tuple[str, str]:
    if measured is None:
        return "seen", ""
    observed, expected = (
        visible(value(number, measured.unit)) for number in (measured.observed, measured.expected)
    )
    return observed, expected


def _others(report: JobReport) -> list[RenderableType]:
    others = report.incidents[1:]
    lines: list[RenderableType] = [
        Text(
            f"Also: {visible(one.cause.kind)}: {visible(job_summary.sentence(one))}"
            f" Confidence {one.confidence:.2f}. See {runbooks.command(visible(one.runbook))}."
        )
        for one in others[:MOST_LINES]
    ]
    return [*lines, *_more(len(others), "incidents")]


def _other_causes(report: JobReport) -> list[RenderableType]:
    several = len(report.incidents) > 1
    seen = [(one, finding) for one in report.incidents for finding in one.other_causes]
    lines: list[RenderableType] = [
        Text(
            f"Also a possible cause{_beside(one) if several else ''}:"
            f" {visible(finding.summary)}{_since(finding)}"
        )
        for one, finding in seen[:MOST_LINES]
    ]
    return [*lines, *_more(len(seen), "possible causes")]


def _beside(incident: Incident) -> str:
    """Return which incident's cause it is told beside."""
    ranks = incident.where.ranks
    return f", beside {visible(incident.cause.kind)}{f' of {ranks_named(ranks)}' if ranks else ''}"


def _observations(report: JobReport) -> list[RenderableType]:
    seen = job_summary.harmless(report)
    lines: list[RenderableType] = [
        Text(f"Also seen, harmless so far: {visible(one.summary)}{_since(one)}", style="dim")
        for one in seen[:MOST_LINES]
    ]
    return [*lines, *_more(len(seen), "observations")]


def _since(finding: Finding) -> str:
    """Return when it began, unless its sentence says so."""
    began = clock(finding.since_unix_seconds) if finding.since_unix_seconds else ""
    return f", since {began}" if began and began not in finding.summary else ""


def _more(count: int, what: str) -> list[RenderableType]:
    hidden = count - MOST_LINES
    return [Text(f"{hidden} more {what}, in --json.", style="dim")] if hidden > 0 else []
