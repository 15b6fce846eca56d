"""Alerts about classes of jobs whose objectives are missed."""

from __future__ import annotations

from rankscope_dashboards.rules import recording_rules as records
from rankscope_dashboards.rules.alerts.alert import Alert, Group


def _missed(objective: str, by_how_much: str) -> str:
    """Return the fraction by which an objective is missed, with its name as a label."""
    return f'label_replace({by_how_much} > 0, "objective", "{objective}", "", "")'


_JOBS = "Jobs of {{ with $labels.job_class }}class {{ . }}{{ else }}no class{{ end }}"
_KEYS = "cluster, job_class"
_GOODPUT = (
    f"1 - {records.CLASS_GOODPUT} / on ({_KEYS}) {records.GOODPUT_OBJECTIVE}"
    f" and on ({_KEYS}) present_over_time({records.CLASS_OBSERVED}[12h] offset 12h)"
)
LEAST_FAILURES = 3
BEYOND_CHANCE = 2
"""Standard deviations of the number of failures that the objective allows, if they are
independent."""

_RATIO, _EXPECTED = records.success("7d"), records.SUCCESS_OBJECTIVE
_SUCCESS = (
    f"1 - {_RATIO} / on ({_KEYS}) {_EXPECTED}"
    f" and on ({_KEYS}) ({_EXPECTED} - on ({_KEYS}) {_RATIO})"
    f" * on ({_KEYS}) sqrt({records.CLASS_JUDGED})"
    f" > on ({_KEYS}) {BEYOND_CHANCE} * sqrt(1 - {_EXPECTED})"
    f" and on ({_KEYS}) (1 - {_RATIO}) * on ({_KEYS}) {records.CLASS_JUDGED}"
    f" > {LEAST_FAILURES - 0.5:g}"
)

MOST_LATE = 0.05
"""Fraction of jobs, or of recoveries: objectives are about 19 of 20."""

_LATE_JOBS = records.CLASS_LATE
_TIME = f"1 - (1 - {_LATE_JOBS}) / {1 - MOST_LATE:g} and {_LATE_JOBS} > {MOST_LATE:g}"

_LATE, _RECOVERED = records.CLASS_RECOVERIES_LATE, records.CLASS_RECOVERIES
_SLOW = (
    f"{_LATE} / ({_RECOVERED} > 0) > {MOST_LATE:g} and {_LATE} > {LEAST_FAILURES - 0.5:g}"
    f" and {_LATE} - {MOST_LATE:g} * {_RECOVERED}"
    f" > {BEYOND_CHANCE} * sqrt({MOST_LATE * (1 - MOST_LATE):g} * {_RECOVERED})"
)

SLOW_RECOVERY = Alert(
    name="RankscopeRecoverySlow",
    expression=_SLOW,
    hold="10m",
    keep="1h",
    why="What is counted of a week changes with each interruption only; ten minutes bridge a watch"
    " that takes over from another. Of few recoveries one is late by chance: three must have been,"
    " and more than two standard deviations beyond what is allowed.",
    severity="ticket",
    scope="cluster",
    summary=f"{_JOBS} recover too slowly: {{{{ $value | humanizePercentage }}}} of their"
    " recoveries were late",
    description=f"{_JOBS} are expected to make steps again within time_to_recover of rankscope.yaml"
    " after a restart or hang, 19 times out of 20; {{ $value | humanizePercentage }} of the"
    " recoveries of the last seven days took longer.",
    dashboard="rankscope-executive",
    since="7d",
)

GROUPS: tuple[Group, ...] = (
    Group(
        "rankscope-objectives",
        (
            Alert(
                name="RankscopeObjectiveMissed",
                expression=f"{_missed('goodput', f'({_GOODPUT})')}"
                f"\nor {_missed('success ratio', f'({_SUCCESS})')}"
                f"\nor {_missed('time to complete', f'({_TIME})')}",
                hold="1h",
                keep="1h",
                why="Goodput of a day, and successes and times of a week, change slowly; another"
                " hour makes no difference. Data must reach into the older half of the day. Of few"
                " jobs one fails by chance: three must have failed, and more than two standard"
                " deviations beyond what is allowed.",
                severity="ticket",
                scope="cluster",
                summary=f"{_JOBS} miss their objective of"
                " {{ $labels.objective }} by {{ $value | humanizePercentage }}",
                description=f"{_JOBS} miss what is expected of them:"
                " {{ $labels.objective }} is {{ $value | humanizePercentage }} worse. Goodput is"
                " the share of a day's GPU time that no fault took; the success ratio is the share"
                " of jobs that succeeded, of those that succeeded or failed within a week; the time"
                " to complete is missed if fewer than 19 of 20 jobs that succeeded within a week"
                " did so within time_to_complete of rankscope.yaml.",
                dashboard="rankscope-executive",
                since="7d",
            ),
            SLOW_RECOVERY,
        ),
        interval="5m",
    ),
)
