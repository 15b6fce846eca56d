"""Verdicts as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.reports.verdict_json import no_straggler
from rankscope_analyzers.reports.verdict_remarks import remarks
from rankscope_analyzers.stragglers.verdict import RankTimes, Verdict
from rankscope_analyzers.text import runbooks
from rankscope_analyzers.text.sanitize import name, visible
from rankscope_analyzers.text.shrinking_table import Column, ShrinkingTable
from rankscope_analyzers.text.wording import clock, duration, period, value

TABLE_RANKS = 16
"""Ranks in the text report; a bigger job shows its slowest ones, --json has all."""

LEAST_NODE = 4
"""Characters below which a node's name is not folded: other columns are left out instead."""

BAR_WIDTH = 24
"""Characters of the bar that represents one step."""

PHASES = (
    *(("data", "yellow", "▒"), ("compute", "red", "█")),
    *(("cpu_wait", "magenta", "▓"), ("sync", "cyan", "░")),
)
"""The phases of a step in the order in which it spends its time, with colour and fill."""

WORTH_SAYING = 0.025
"""Fraction of a rank's step above which waits for a CPU are explained, as small as faults that
count (`rank_faults.MINIMUM_COST`)."""


def render(verdict: Verdict) -> RenderableType:
    """Return the report of one job: the verdict, its evidence, the ranks, what was not seen."""
    parts: list[RenderableType] = [_headline(verdict)]
    if verdict.cause:
        parts.append(_evidence_table(verdict.cause))
    culprits = verdict.cause.where.ranks if verdict.cause else ()
    if verdict.ranks:
        parts.append(rank_table(verdict.ranks, culprits))
    parts.extend(Text(visible(sentences), style="dim") for sentences in remarks(verdict))
    parts.extend(map(not_seen, verdict.unobserved))
    return Group(*parts)


def title(job_id: str) -> Text:
    """Return the title of a job's panel; brackets in its name are not markup."""
    return Text(f"job {name(job_id)}")


def size(verdict: Verdict) -> str:
    """Return how much was judged."""
    return (
        f"{len(verdict.ranks)} ranks, {verdict.steps} steps judged, median step "
        f"{_duration(verdict.median_step_seconds)}"
    )


def not_seen(sentence: str) -> Text:
    """Return the line for something that could not be seen."""
    return Text(f"Not seen: {visible(sentence)}.", style="yellow")


def _headline(verdict: Verdict) -> RenderableType:
    cause = verdict.cause
    body = Text(f"{size(verdict)}\n", style="not bold")
    if cause is None:
        style = "bold green" if verdict.confidence else "bold yellow"
        sentences = visible(no_straggler(verdict))
        return Panel(body.append(sentences, style=style), title=title(verdict.job_id))
    until, cost = cause.until_unix_seconds, cause.known_cost
    part, hours = f"{cost.lost_fraction:.0%} of every step", f"{cost.gpu_hours:.3g} GPU-hours"
    over = "" if until is None else f"over, recovered at {clock(until)}: "
    spent = f"costs {part}, {hours} so far" if until is None else f"cost {part}, {hours}"
    body.append(f"{cause.kind}: ", style="bold red" if until is None else "bold yellow")
    when = period(cause.since_unix_seconds, None)
    body.append(f"{over}{visible(cause.summary)} {when}\n", style="bold")
    body.append(f"It {spent}. Confidence {verdict.confidence:.2f}.\n")
    body.append(f"{visible(cause.action)} See {runbooks.command(visible(cause.runbook))}.")
    return Panel(body, title=title(verdict.job_id), border_style="red")


def _evidence_table(found: Finding) -> Table:
    table = Table(title="Evidence (means over the fault)", title_justify="left", box=None)
    table.add_column("measured")
    table.add_column("culprit" if found.where.ranks else "now", justify="right")
    split = found.kind == "partition_imbalance"
    expected = "expected" if split else "peers" if found.where.ranks else "before"
    table.add_column(expected, justify="right")
    table.add_column("what it is")
    for evidence in found.evidence:
        values = [value(number, evidence.unit) for number in (evidence.observed, evidence.expected)]
        cells = (evidence.source, *values, evidence.meaning)
        table.add_row(*(Text(visible(cell)) for cell in cells))
    return table


def rank_table(ranks: Sequence[RankTimes], culprits: Sequence[int]) -> Table:
    """Return the median step of the culprits and of the busiest others, in the order of ranks."""
    shown = sorted(ranks, key=lambda times: (times.rank not in culprits, -_busy(times)))
    hidden = len(shown) - TABLE_RANKS
    sentences = "Median step of each rank" + (f" ({hidden} more in --json)" if hidden > 0 else "")
    starved = any((t.cpu_wait or 0.0) > WORTH_SAYING * (t.step or 0.0) for t in ranks)
    # A legend that is longer than the bars would leave too little of 80 columns for the numbers.
    if starved:
        sentences += ": data ▒ compute █ CPU wait ▓ sync ░"
    listed = sorted(shown[:TABLE_RANKS], key=lambda times: times.rank)
    longest = max((times.step or 0.0 for times in ranks), default=0.0)
    bars = "" if starved else "data ▒ compute █ sync ░"
    columns = (
        Column("rank", [Text(str(times.rank)) for times in listed], is_number=True),
        Column("node", [Text(name(times.node)) for times in listed], least=LEAST_NODE),
        *(_durations(column, listed) for column in ("step", "data", "compute", "sync")),
        Column(bars, [_bar(times, longest) for times in listed]),
    )
    optional = (frozenset((bars,)), frozenset(("data", "sync")), frozenset(("compute",)))
    styles = ["bold" if times.rank in culprits else "" for times in listed]
    return ShrinkingTable(columns, optional, styles, sentences)


def _durations(column: str, ranks: Sequence[RankTimes]) -> Column:
    cells = [Text(_duration(getattr(times, column))) for times in ranks]
    return Column(column, cells, is_number=True)


def _busy(times: RankTimes) -> float:
    return (times.data or 0.0) + (times.compute or 0.0) + (times.cpu_wait or 0.0)


def _bar(times: RankTimes, longest: float) -> Text:
    bar = Text()
    for phase, colour, fill in PHASES:
        seconds = getattr(times, phase) or 0.0
        width = BAR_WIDTH * seconds / longest if longest else 0.0
        # Phases of an invented record can take any multiple of its step.
        bar.append(fill * round(min(width, BAR_WIDTH - len(bar))), style=colour)
    return bar


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)
