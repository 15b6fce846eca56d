"""Alerts about classes of jobs whose objectives are missed."""

from __future__ import annotations

from rankscope_dashboards.rules import recording_rules as records
from rankscope_dashboards.rules.alerts.alert import Alert, Group


def _missed(objective: str, by_how_much: str) -> str:
    """Return by which part an objective is missed, with its name as a label."""
    return f'label_replace({by_how_much} > 0, "objective", "{objective}", "", "")'


_JOBS = "Jobs of {{ with $labels.job_class }}class {{ . }}{{ else }}no class{{ end }}"
_KEYS = "cluster, job_class"
_GOODPUT = (
    f"1 - {records.CLASS_GOODPUT} / on ({_KEYS}) {records.GOODPUT_OBJECTIVE}"
    f" and on ({_KEYS}) present_over_time({records.CLASS_OBSERVED}[12h] offset 12h)"
)
_TIME = f"{records.CLASS_DURATION} / on ({_KEYS}) {records.DURATION_OBJECTIVE} - 1"

GROUPS: tuple[Group, ...] = (
    Group(
        "rankscope-objectives",
        (
            Alert(
                name="RankscopeObjectiveMissed",
                expression=f"{_missed('goodput', f'({_GOODPUT})')}"
                f"\nor {_missed('time to complete', f'({_TIME})')}",
                hold="1h",
                keep="1h",
                why="Goodput of a day and times of a week change slowly; another hour makes no"
                " difference. Data must reach into the older half of the day.",
                severity="ticket",
                scope="cluster",
                summary=f"{_JOBS} miss their objective of"
                " {{ $labels.objective }} by {{ $value | humanizePercentage }}",
                description=f"{_JOBS} miss what is expected of them:"
                " {{ $labels.objective }} is {{ $value | humanizePercentage }} worse. Goodput is"
                " the share of a day's GPU time that no fault took; the time to complete is what"
                " 19 of 20 jobs took that succeeded within a week.",
                dashboard="rankscope-executive",
                since="7d",
            ),
        ),
        interval="5m",
    ),
)
