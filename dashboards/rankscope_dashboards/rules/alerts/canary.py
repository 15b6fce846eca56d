"""The alert about the canary: the chain from probe to series no longer names a known slow rank."""

from __future__ import annotations

from rankscope_agent.contract.canary import SLOW_RANK, SYMPTOM
from rankscope_agent.contract.metrics import canary
from rankscope_dashboards.expressions.promql import worst
from rankscope_dashboards.rules.alerts.alert import Alert, Group

MISSED_SECONDS = 7800
"""Two runs of the hourly canary, and ten minutes in which the second one starts and trains."""

REMEMBERED = "7d"
"""Nobody acts on an alert that ends: after the last success it fires for a week."""

RIGHT = f'symptom="{SYMPTOM}",rank="{SLOW_RANK}"'

_NAMED = worst(f"last_over_time({canary.CANARY_NAMED.name}{{{RIGHT}}}[{REMEMBERED}])", "job_id")
_FIRST = f"min by (cluster, job_id) (min_over_time({canary.CANARY_STEP.name}[{REMEMBERED}]))"

MISSED = Alert(
    name="RankscopeCanaryMissed",
    expression=f"(time() - {_NAMED}) > {MISSED_SECONDS}\n"
    f"or ((time() - {_FIRST}) > {MISSED_SECONDS} unless on (cluster, job_id) {_NAMED})",
    hold="0s",
    keep="150m",
    why="The expression waits for two runs: one may find no node, or one that is too busy. A chain"
    " that names the rank now and then is one alert, which takes longer to end than a run is late.",
    severity="ticket",
    scope="cluster",
    summary="The slow rank of the canary {{ $labels.job_id }} is not named",
    description=f"Rank {SLOW_RANK} of the canary {{{{ $labels.job_id }}}} is slow on purpose and"
    " has not been named for {{ $value | humanizeDuration }}. Somewhere between probe, agent, watch"
    " and Prometheus the chain is broken: slow ranks of real jobs may not be named either.",
    since="6h",
)

GROUPS: tuple[Group, ...] = (Group("rankscope-canary", (MISSED,), interval="1m"),)
