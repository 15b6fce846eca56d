"""Show verdicts: as text for a person and as JSON for a program. Nothing else formats.

The JSON schema is part of the product's interface (docs/verdict_json.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rankscope_analyzers.finding import Evidence, Finding
from rankscope_analyzers.verdict import RankTimes, Verdict
from rankscope_analyzers.what_if import WhatIf
from rankscope_analyzers.wording import duration

TABLE_RANKS = 16
"""Ranks in the text report; a bigger job shows its busiest ones, --json has all."""

SAME_IDEAL = 0.005
"""Ideals that differ by less of the step are one number to a person."""
NOTABLE_OFFSET_SECONDS = 0.005
"""A step's tenth in the fastest jobs; NTP keeps nodes of a cluster within a millisecond."""

BAR_WIDTH = 24
"""Characters of the bar that stands for one step."""

PHASES = (("data", "yellow", "▒"), ("compute", "red", "█"), ("sync", "cyan", "░"))
"""The phases of a step in the order in which it spends its time, with colour and fill."""


def as_object(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON-ready values; seconds and shares, null for unknown."""
    cause = verdict.cause
    return {
        "verdict": {
            "class": cause.kind if cause else None,
            "ranks": list(cause.subject.ranks) if cause else [],
            "lost_fraction": round(cause.cost.lost_fraction, 6) if cause else 0.0,
            "confidence": round(verdict.confidence, 4),
            **(_finding_object(cause) if cause else {"summary": _no_straggler(verdict)}),
        },
        "other_findings": [
            {"class": found.kind, "ranks": list(found.subject.ranks), **_finding_object(found)}
            for found in verdict.others
        ],
        "what_if": _what_if_object(verdict.what_if),
        "unobserved": list(verdict.unobserved),
        "clock_offsets": [
            {
                "node": offset.node,
                "offset_seconds": round(offset.seconds, 6),
                "error_seconds": round(offset.error_seconds, 6),
                "drift_ppm": round(offset.drift * 1e6, 3),
            }
            for offset in verdict.clock_offsets
        ],
        "steps_judged": verdict.steps,
        "median_step_seconds": verdict.median_step_seconds,
        "naive": {"rank": verdict.naive.rank, "step_time_spread": round(verdict.naive.spread, 6)},
        "ranks": [
            {
                "rank": times.rank,
                "node": times.node,
                "step_seconds": times.step,
                "data_seconds": times.data,
                "compute_seconds": times.compute,
                "sync_seconds": times.sync,
            }
            for times in verdict.ranks
        ],
    }


def _what_if_object(ideals: WhatIf | None) -> dict[str, Any] | None:
    if ideals is None:
        return None
    return {
        name: {
            "slowdown": round(ideal.slowdown, 4),
            "lost_fraction": round(ideal.lost_fraction, 6),
            "gpu_hours_lost": round(ideal.gpu_hours, 6),
        }
        for name, ideal in (
            ("all_equal", ideals.all_equal),
            ("stage_weights_kept", ideals.stage_weights_kept),
        )
    }


def _finding_object(found: Finding) -> dict[str, Any]:
    return {
        "summary": found.summary,
        "nodes": list(found.subject.nodes),
        "gpus": list(found.subject.gpus),
        "severity": found.severity,
        "since_unix_seconds": found.since_unix_seconds,
        "until_unix_seconds": found.until_unix_seconds,
        "gpu_hours_lost": round(found.cost.gpu_hours, 6),
        "action": found.action,
        "runbook": found.runbook,
        "evidence": evidence_objects(found.evidence),
    }


def evidence_objects(evidence: Sequence[Evidence]) -> list[dict[str, Any]]:
    """Return evidence as JSON-ready values."""
    return [
        {
            "source": item.source,
            "observed": item.observed,
            "expected": item.expected,
            "unit": item.unit,
            "meaning": item.meaning,
        }
        for item in evidence
    ]


def show(console: Console, verdicts: Sequence[Verdict]) -> None:
    """Print verdicts for a person."""
    for verdict in verdicts:
        console.print(render(verdict))


def render(verdict: Verdict) -> RenderableType:
    """Return the report of one job: the verdict, its evidence, the ranks, what was not seen."""
    parts: list[RenderableType] = [_headline(verdict)]
    if verdict.cause:
        parts.append(_evidence_table(verdict.cause))
    if verdict.ranks:
        parts.append(_rank_table(verdict))
    parts.append(_what_if_line(verdict))
    parts.append(_naive_line(verdict))
    parts.extend(_clock_lines(verdict))
    parts.extend(Text(f"Not seen: {sentence}.", style="yellow") for sentence in verdict.unobserved)
    return Group(*parts)


def _headline(verdict: Verdict) -> RenderableType:
    title = f"job {verdict.job_id}"
    cause = verdict.cause
    body = Text(
        f"{len(verdict.ranks)} ranks, {verdict.steps} steps judged, median step "
        f"{_duration(verdict.median_step_seconds)}\n",
        style="not bold",
    )
    if cause is None:
        style = "bold green" if verdict.confidence else "bold yellow"
        return Panel(body.append(_no_straggler(verdict), style=style), title=title)
    body.append(f"{cause.kind}: ", style="bold red")
    body.append(f"{cause.summary} {_when(cause)}\n", style="bold")
    body.append(
        f"It costs {cause.cost.lost_fraction:.0%} of every step, {cause.cost.gpu_hours:.3g} "
        f"GPU-hours so far. Confidence {verdict.confidence:.2f}.\n"
    )
    body.append(f"{cause.action} See {cause.runbook}.")
    return Panel(body, title=title, border_style="red")


def _no_straggler(verdict: Verdict) -> str:
    if not verdict.confidence:
        return f"no verdict: {verdict.unobserved[0]}"
    return f"no straggler: no rank holds the others up (confidence {verdict.confidence:.2f})"


def _when(found: Finding) -> str:
    until = found.until_unix_seconds
    since = _clock(found.since_unix_seconds)
    return f"since {since}" if until is None else f"from {since} to {_clock(until)}"


def _clock(unix_seconds: float) -> str:
    return f"{datetime.fromtimestamp(unix_seconds, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def _evidence_table(found: Finding) -> Table:
    table = Table(title="Evidence (means over the fault)", title_justify="left", box=None)
    table.add_column("measured")
    table.add_column("culprit" if found.subject.ranks else "now", justify="right")
    split = found.kind == "partition_imbalance"
    expected = "expected" if split else "peers" if found.subject.ranks else "before"
    table.add_column(expected, justify="right")
    table.add_column("what it is")
    for evidence in found.evidence:
        values = (_value(value, evidence.unit) for value in (evidence.observed, evidence.expected))
        table.add_row(evidence.source, *values, evidence.meaning)
    return table


def _value(value: float, unit: str) -> str:
    return duration(value) if unit == "seconds" else f"{value:.4g}"


def _rank_table(verdict: Verdict) -> Table:
    culprits = verdict.cause.subject.ranks if verdict.cause else ()
    shown = sorted(verdict.ranks, key=lambda times: (times.rank not in culprits, -_busy(times)))
    hidden = len(shown) - TABLE_RANKS
    title = "Median step of each rank" + (f" ({hidden} more in --json)" if hidden > 0 else "")
    table = Table(title=title, title_justify="left", box=None)
    for name in ("rank", "node", "step", "data", "compute", "sync"):
        table.add_column(name, justify="left" if name == "node" else "right")
    table.add_column("data ▒ compute █ sync ░", no_wrap=True)
    longest = max((times.step or 0.0 for times in verdict.ranks), default=0.0)
    for times in sorted(shown[:TABLE_RANKS], key=lambda times: times.rank):
        numbers = [_duration(v) for v in (times.step, times.data, times.compute, times.sync)]
        style = "bold" if times.rank in culprits else ""
        bar = _bar(times, longest)
        table.add_row(str(times.rank), times.node, *numbers, bar, style=style)
    return table


def _busy(times: RankTimes) -> float:
    return (times.data or 0.0) + (times.compute or 0.0)


def _bar(times: RankTimes, longest: float) -> Text:
    bar = Text()
    for name, colour, fill in PHASES:
        seconds = getattr(times, name) or 0.0
        width = round(BAR_WIDTH * seconds / longest) if longest else 0
        bar.append(fill * width, style=colour)
    return bar


def _what_if_line(verdict: Verdict) -> Text:
    """Say what the whole run lost; the two ideals are told apart where stages are uneven."""
    ideals = verdict.what_if
    if ideals is None:
        return Text("")
    equal, kept = ideals.all_equal, ideals.stage_weights_kept
    said = (
        f"Over all steps judged the job ran {equal.slowdown:.2f}x as long as with all ranks equal "
        f"({equal.gpu_hours:.3g} GPU-hours)"
    )
    if abs(equal.lost_fraction - kept.lost_fraction) >= SAME_IDEAL:
        said += (
            f", {kept.slowdown:.2f}x as long as with its stages as they are and no slow rank "
            f"({kept.gpu_hours:.3g} GPU-hours)"
        )
    return Text(f"{said}.")


def _clock_lines(verdict: Verdict) -> Iterator[Text]:
    """Name the node whose clock is furthest off, if that would mislead who compares logs."""
    known = [offset for offset in verdict.clock_offsets if offset.significant]
    worst = max(known, key=lambda offset: abs(offset.seconds), default=None)
    if worst is not None and abs(worst.seconds) >= NOTABLE_OFFSET_SECONDS:
        where = "ahead of" if worst.seconds > 0 else "behind"
        yield Text(
            f"Clocks: {worst.node} is {_duration(abs(worst.seconds))} {where} the middle of"
            f" {len(verdict.clock_offsets)} nodes, by the common ends of their steps.",
            style="dim",
        )


def _naive_line(verdict: Verdict) -> Text:
    naive = verdict.naive
    if naive.rank is None:
        return Text("")
    return Text(
        f"Step times alone would blame rank {naive.rank}, {naive.spread:.1%} above the fastest: "
        "ranks of a synchronous job all take equally long.",
        style="dim",
    )


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)
