"""Alerts about the watch's looks for new steps, between its evaluations of all jobs."""

from __future__ import annotations

from rankscope_agent.contract.metrics import watch
from rankscope_dashboards.expressions.promql import by, worst
from rankscope_dashboards.rules.alerts import texts
from rankscope_dashboards.rules.alerts.alert import Alert, Group

LATE_SECONDS = 120
"""Looks are five seconds apart; one that waits for an evaluation of 16,384 ranks comes within
half a minute."""

_BY_SHARD = (
    '{{ if and $labels.shards (ne $labels.shards "1") }}'
    " (shard {{ $labels.shard }} of {{ $labels.shards }}){{ end }}"
)

LAGGING = Alert(
    name="RankscopeStepsLagging",
    expression=f"(time() - {worst(watch.WATCH_STEP_LOOK.name, 'shard', 'shards')})"
    f" > {LATE_SECONDS}",
    hold="5m",
    keep="10m",
    why=(
        "New steps are fetched every five seconds, or within half a minute if an"
        " evaluation of 16,384 ranks delays it. A watch that is gone has no such series;"
        " RankscopeWatchLagging fires then."
    ),
    severity="ticket",
    scope="cluster",
    summary="rankscope watch gets no new steps",
    description=(
        f"The last fetch of new steps that an agent answered{_BY_SHARD} was"
        " {{ $value | humanizeDuration }} ago. Incidents open and end late, or not at all,"
        " because evaluations use the same steps."
    ),
)

_JOBS = f"{worst(watch.JOB_SILENT_RANKS.name, 'job_id')} > 0"

SILENT = Alert(
    name="RankscopeSilentRanks",
    expression=f"count {by()} ({_JOBS})",
    hold="5m",
    keep="15m",
    why=(
        "An agent counts as silent after a minute, so a rolling restart does not matter."
        " One that answers occasionally is a single alert."
    ),
    severity="ticket",
    scope="cluster",
    summary=f"{texts.number_of('job')} {texts.by_number('has', 'have')} ranks whose agents do not"
    " answer the watch",
    description=(
        f"The watch does not see the steps of some ranks of {texts.number_of('job')}: it"
        " may miss that they are slow, or that the jobs hang."
    )
    + texts.known(
        f"topk(5, max by (job_id) ({watch.JOB_SILENT_RANKS.name}{{cluster=%q}}) > 0)",
        "It does not see {{ .Value }} ranks of job {{ .Labels.job_id }}.",
        "cluster",
    ),
)

GROUPS: tuple[Group, ...] = (Group("rankscope-steps", (LAGGING, SILENT)),)
