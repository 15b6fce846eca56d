"""Alerts about projects' spending on GPU time: too much for a budget, or unlike the week before."""

from __future__ import annotations

from rankscope_agent.contract.metrics import goodput
from rankscope_dashboards.rules import recording_rules as records
from rankscope_dashboards.rules.alerts.alert import Alert, Group
from rankscope_dashboards.rules.alerts.limits import limit

BUDGET_DAYS = 30
PACE = "6h"
"""Window for comparing spending with a budget: two thirds of a working day."""

LEAST_SHARE = 0.05
"""Fraction of what all projects spend in a day by which one must exceed its own: less surprises
nobody who pays for the cluster."""

_KEYS = "cluster, project, currency"
_PACE = f"{BUDGET_DAYS} * 86400 * avg_over_time({records.PROJECT_COST}[{PACE}])"

_DAY, _WEEK = records.PROJECT_DAY, records.PROJECT_WEEK_BEFORE
_EVERYBODY = f"sum by (cluster, currency) ({_DAY})"

OVERSPENT = Alert(
    name="RankscopeBudgetPace",
    expression=f"{_PACE} > on ({_KEYS})"
    f" max by ({_KEYS}) ({goodput.PROJECT_BUDGET.name})\n"
    f"and on ({_KEYS}) present_over_time({records.PROJECT_COST}[3h] offset 3h)",
    hold="1h",
    keep="10m",
    why="The pace of six hours says more than that of a single large job's start; money that is"
    " spent within another hour does not matter.",
    severity="ticket",
    scope="cluster",
    summary="Project {{ $labels.project }} spends more than its budget",
    description="At the pace of the last six hours project {{ $labels.project }} spends"
    " {{ $value | humanize }} {{ $labels.currency }} in 30 days, more than its budget.",
    dashboard="rankscope-executive",
    since="7d",
)

UNUSUAL = Alert(
    name="RankscopeSpendingUnusual",
    expression=f"{_DAY} / ({_WEEK} > 0) > {limit('spending_growth')}\n"
    f"and on ({_KEYS}) ({_DAY} - {_WEEK})"
    f" > on (cluster, currency) group_left () {LEAST_SHARE:g} * {_EVERYBODY}\n"
    f"and on ({_KEYS}) present_over_time({records.PROJECT_COST}[1d] offset 7d)",
    hold="1h",
    keep="1h",
    why="A mean of a day changes slowly, and is compared with seven days that must be known. What"
    " a small project spends may double without mattering: the excess must be a twentieth of what"
    " all projects spend.",
    severity="ticket",
    scope="cluster",
    summary="Project {{ $labels.project }} spent {{ $value | humanize }} times as much in a day"
    " as before",
    description="In 24 hours project {{ $labels.project }} spent {{ $value | humanize }} times"
    " as much ({{ $labels.currency }}) as on an average day of the week before.",
    dashboard="rankscope-executive",
    since="7d",
)

GROUPS: tuple[Group, ...] = (Group("rankscope-spending", (OVERSPENT, UNUSUAL), interval="5m"),)
